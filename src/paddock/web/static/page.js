// What the other scripts share: addresses below our root, remembered choices, listening.

export const root = document.querySelector('meta[name="paddock-root"]')?.content ?? "";

// url("/api/kinds") -> "/paddock/api/kinds" behind a proxy that serves us there.
export function url(path) {
  return root + path;
}

// Storage may be switched off; a choice then lasts as long as the page.
const memory = new Map();

export const store = {
  get(key, storage = "localStorage") {
    try {
      return window[storage].getItem(key);
    } catch {
      return memory.get(key) ?? null;
    }
  },
  set(key, value, storage = "localStorage") {
    try {
      window[storage].setItem(key, value);
    } catch {
      memory.set(key, value);
    }
  },
  remove(key, storage = "localStorage") {
    try {
      window[storage].removeItem(key);
    } catch {
      memory.delete(key);
    }
  },
};

// Listens on the document, so that what arrives later is heard too.
export function on(selector, type, handle) {
  document.addEventListener(type, (event) => {
    const found = event.target instanceof Element ? event.target.closest(selector) : null;
    if (found) handle(event, found);
  });
}

// Tells the other scripts that something was drawn; they look at it as they looked at the page.
export function drawn(element) {
  document.dispatchEvent(new CustomEvent("paddock:drawn", { detail: element }));
}

export function whenDrawn(look) {
  look(document.body);
  document.addEventListener("paddock:drawn", (event) => look(event.detail));
}
