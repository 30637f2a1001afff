// Changes what is there into what came, touching only what differs: focus, open <details>, scroll positions and
// what somebody typed stay. Elements with an id are found again wherever they moved. `data-keep` leaves the inside of
// an element to the script that drew it. A table row whose words changed gets the class `changed` for a moment.

export function morph(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  children(element, template.content);
}

function children(old, fresh) {
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  let place = old.firstChild;
  let changed = false;
  for (const wanted of [...fresh.childNodes]) {
    const found = match(place, wanted, known);
    if (!found) {
      old.insertBefore(wanted, place);
      changed = true;
    } else {
      if (found === place) place = place.nextSibling;
      else old.insertBefore(found, place);
      changed = same(found, wanted) || changed;
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
    changed = true;
  }
  return changed;
}

function match(place, wanted, known) {
  if (wanted.id) return known.get(wanted.id);
  if (!place || place.id || place.nodeType !== wanted.nodeType || place.nodeName !== wanted.nodeName) return null;
  return place;
}

// Makes one like the other; true when its words changed.
function same(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data === fresh.data) return false;
    old.data = fresh.data;
    return old.data.trim() !== "";
  }
  attributes(old, fresh);
  if (old.hasAttribute("data-keep")) return false;
  const changed = children(old, fresh);
  if (changed && old.nodeName === "TR" && old.id) flash(old);
  return changed && old.nodeName !== "TIME";
}

function attributes(old, fresh) {
  const isOpen = old.nodeName === "DETAILS" || old.nodeName === "DIALOG";
  const isField = old.nodeName === "INPUT" && (old.name === "csrf" || old.value !== old.defaultValue);
  for (const { name, value } of fresh.attributes) {
    if ((isOpen && name === "open") || (isField && name === "value")) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (fresh.hasAttribute(name) || (isOpen && name === "open") || name === "style") continue;
    old.removeAttribute(name);
  }
}

function flash(row) {
  row.classList.remove("changed");
  requestAnimationFrame(() => row.classList.add("changed"));
}
