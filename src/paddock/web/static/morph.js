// Changes what is there into what came, touching only what differs: focus, open <details>, scroll positions and
// what somebody typed stay. Elements with an id are found again wherever they moved. `data-keep` leaves the inside of
// an element to the script that drew it. A table row whose words changed gets the class `changed` for a moment.

export function morph(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  children(element, template.content);
}

const LOOKED_AHEAD = 8;

function children(old, fresh) {
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  const used = new Set();
  let place = old.firstChild;
  let changed = false;
  for (const wanted of [...fresh.childNodes]) {
    const found = match(place, wanted, known, used);
    used.add(found ?? wanted);
    if (!found) {
      old.insertBefore(wanted, place);
      changed = true;
      continue;
    }
    // What is further on stays where it is, and what it passed over is moved or removed instead: moving loses focus.
    if (isAt(found, place)) place = found.nextSibling;
    else old.insertBefore(found, place);
    changed = same(found, wanted) || changed;
  }
  for (const child of [...old.childNodes]) {
    if (used.has(child)) continue;
    child.remove();
    changed = true;
  }
  return changed;
}

function isAt(found, place) {
  return found === place || Boolean(place && place.compareDocumentPosition(found) & Node.DOCUMENT_POSITION_FOLLOWING);
}

function match(place, wanted, known, used) {
  if (wanted.id) return known.get(wanted.id);
  if (wanted.nodeType !== Node.ELEMENT_NODE) return place?.nodeType === wanted.nodeType && !used.has(place) ? place : null;
  for (let at = place, looked = 0; at && looked < LOOKED_AHEAD; at = at.nextSibling) {
    if (at.nodeType !== Node.ELEMENT_NODE) continue;
    looked += 1;
    const alike = at.nodeName === wanted.nodeName && (at === place || at.className === wanted.className);
    if (alike && !at.id && !used.has(at)) return at;
  }
  return null;
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
