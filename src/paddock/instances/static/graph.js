// A graph of at most some hundred nodes as SVG: laid out by springs, dragged, zoomed, and walked by keyboard.
// Names in it are anybody's text: they are only ever set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;
const MOST = 300;
const ROUNDS = 220;
const RADIUS = 11;
// Two nodes are never nearer to each other: a circle with its name below it.
const NEAREST = 52;
// Between two edges of the same two nodes.
const BEND = 16;
// Each graph of a page has an arrow of its own.
let arrows = 0;

export function draw(place, data, expand, write) {
  const view = new View(place, expand, write);
  view.add(data);
  view.fit();
}

// What many edges pull to the same place (two airports with the same airlines) would hide each other.
function separate(nodes) {
  for (let round = 0; round < 20; round++) {
    for (let a = 0; a < nodes.length; a++) {
      for (let b = a + 1; b < nodes.length; b++) {
        const dx = nodes[a].x - nodes[b].x || 0.1;
        const dy = nodes[a].y - nodes[b].y || 0.1;
        const length = Math.hypot(dx, dy);
        if (length >= NEAREST) continue;
        const step = (NEAREST - length) / 2 / length;
        for (const [node, way] of [[nodes[a], step], [nodes[b], -step]]) {
          if (!node.held) Object.assign(node, { x: node.x + dx * way, y: node.y + dy * way });
        }
      }
    }
  }
}

class View {
  constructor(place, expand, write) {
    this.place = place;
    this.expand = expand;
    this.write = write;
    this.svg = place.querySelector("svg");
    this.card = place.querySelector(".node-card");
    this.nodes = new Map();
    this.edges = new Map();
    this.labels = [];
    this.found = 0;
    this.cut = false;
    this.arrow();
    this.layer = make("g", {}, this.svg);
    this.box = { x: -400, y: -300, width: 800, height: 600 };
    this.listen();
  }

  add(data) {
    this.found = Math.max(this.found, data.found, this.nodes.size);
    this.cut ||= data.cut ?? false;
    const near = [...this.nodes.values()].at(-1) ?? { x: 0, y: 0 };
    for (const node of data.nodes) {
      if (this.nodes.has(node.id) || this.nodes.size >= MOST) continue;
      const angle = this.nodes.size * 2.4;
      const radius = 18 * Math.sqrt(this.nodes.size + 1);
      const at = { x: near.x + radius * Math.cos(angle), y: near.y + radius * Math.sin(angle) };
      this.nodes.set(node.id, { ...node, ...at, vx: 0, vy: 0 });
      if (!this.labels.includes(node.label)) this.labels.push(node.label);
    }
    for (const edge of data.edges) {
      if (this.edges.has(edge.id) || !this.nodes.has(edge.from) || !this.nodes.has(edge.to)) continue;
      const beside = [...this.edges.values()].filter((one) => pair(one) === pair(edge));
      this.edges.set(edge.id, { ...edge, bend: beside.length });
    }
    this.settle();
    this.render();
  }

  settle() {
    const nodes = [...this.nodes.values()];
    const edges = [...this.edges.values()];
    const apart = 70;
    for (let round = 0; round < ROUNDS; round++) {
      const heat = 1 - round / ROUNDS;
      for (let a = 0; a < nodes.length; a++) {
        for (let b = a + 1; b < nodes.length; b++) {
          const dx = nodes[a].x - nodes[b].x || 0.1;
          const dy = nodes[a].y - nodes[b].y || 0.1;
          const square = dx * dx + dy * dy;
          // Who is far away is left alone: parts that nothing connects would drive each other out of sight.
          if (square > 16 * apart * apart) continue;
          const push = (apart * apart * 2.2) / Math.max(square, 40);
          nodes[a].vx += dx * push * 0.02;
          nodes[a].vy += dy * push * 0.02;
          nodes[b].vx -= dx * push * 0.02;
          nodes[b].vy -= dy * push * 0.02;
        }
      }
      for (const edge of edges) {
        const from = this.nodes.get(edge.from);
        const to = this.nodes.get(edge.to);
        const dx = to.x - from.x;
        const dy = to.y - from.y;
        const pull = ((Math.hypot(dx, dy) || 1) - apart) * 0.006;
        from.vx += dx * pull * 0.2;
        from.vy += dy * pull * 0.2;
        to.vx -= dx * pull * 0.2;
        to.vy -= dy * pull * 0.2;
      }
      for (const node of nodes) {
        const speed = Math.hypot(node.vx, node.vy);
        const most = 30 * heat;
        const scale = speed > most ? most / speed : 1;
        if (!node.held) {
          node.x += node.vx * scale - node.x * 0.012;
          node.y += node.vy * scale - node.y * 0.012;
        }
        node.vx *= 0.5;
        node.vy *= 0.5;
      }
    }
    separate(nodes);
  }

  render() {
    this.layer.replaceChildren();
    for (const edge of this.edges.values()) this.renderEdge(edge);
    for (const node of this.nodes.values()) this.renderNode(node);
    const count = this.place.querySelector(".graph-count");
    count.textContent = this.counted();
    const legend = this.place.querySelector(".legend");
    legend.replaceChildren(
      ...this.labels.map((label, n) => {
        const item = document.createElement("span");
        item.className = `legend-item colour-${n % COLOURS}`;
        item.textContent = label;
        return item;
      }),
    );
  }

  // Of how many: where the answer was cut nobody has counted the others.
  counted() {
    const shown = this.nodes.size;
    const found = this.found.toLocaleString();
    if (this.cut) return `${shown} of at least ${found} nodes: the answer has more rows than a page shows`;
    return this.found > shown ? `${shown} of ${found} nodes` : `${shown} nodes`;
  }

  arrow() {
    this.arrowId = `arrow-${(arrows += 1)}`;
    const marker = { id: this.arrowId, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
    make("path", { d: "M0 0 8 4 0 8z", class: "arrow" }, make("marker", marker, make("defs", {}, this.svg)));
  }

  renderEdge(edge) {
    const [from, to] = [this.nodes.get(edge.from), this.nodes.get(edge.to)];
    edge.shape = make("g", { class: "edge", tabindex: 0, role: "button" }, this.layer);
    edge.shape.setAttribute("aria-label", `${from.title} ${edge.type} ${to.title}`);
    edge.shape.dataset.edge = edge.id;
    edge.reach = make("path", { class: "reach" }, edge.shape);
    edge.line = make("path", { class: "line", "marker-end": `url(#${this.arrowId})` }, edge.shape);
    make("title", {}, edge.shape).textContent = edge.type;
    this.placeEdge(edge);
  }

  placeEdge(edge) {
    const way = this.way(edge);
    set(edge.reach, { d: way });
    set(edge.line, { d: way });
  }

  // From circle to circle, so that its arrow is seen; each further one of the same two nodes is bent.
  way(edge) {
    const [from, to] = [this.nodes.get(edge.from), this.nodes.get(edge.to)];
    if (from === to) {
      const wide = 26 + edge.bend * BEND;
      return `M${from.x - 6} ${from.y - RADIUS} C${from.x - wide} ${from.y - 2 * wide} ${from.x + wide} ${from.y - 2 * wide} ${from.x + 6} ${from.y - RADIUS}`;
    }
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const [dx, dy] = [(to.x - from.x) / length, (to.y - from.y) / length];
    const gap = Math.min(RADIUS + 2, length / 2);
    const middle = [(from.x + to.x) / 2 - dy * edge.bend * BEND, (from.y + to.y) / 2 + dx * edge.bend * BEND];
    return `M${from.x + dx * gap} ${from.y + dy * gap} Q${middle.join(" ")} ${to.x - dx * gap} ${to.y - dy * gap}`;
  }

  renderNode(node) {
    const colour = this.labels.indexOf(node.label) % COLOURS;
    node.shape = make("g", { class: `node colour-${colour}`, tabindex: 0, role: "button" }, this.layer);
    node.shape.setAttribute("aria-label", `${node.label} ${node.title}`);
    node.shape.dataset.id = node.id;
    make("circle", { r: 11 }, node.shape);
    make("text", { y: 24 }, node.shape).textContent = node.title;
    this.move(node);
  }

  move(node) {
    node.shape.setAttribute("transform", `translate(${node.x} ${node.y})`);
    for (const edge of this.edges.values()) {
      if (edge.from === node.id || edge.to === node.id) this.placeEdge(edge);
    }
  }

  listen() {
    this.svg.addEventListener("pointerdown", (event) => this.hold(event));
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.15 : 0.87);
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.place.addEventListener("click", (event) => this.press(event));
  }

  nodeOf(event) {
    const shape = event.target.closest(".node");
    return shape === null ? null : this.nodes.get(shape.dataset.id);
  }

  edgeOf(event) {
    const shape = event.target.closest(".edge");
    return shape === null ? null : this.edges.get(shape.dataset.edge);
  }

  open(node, edge) {
    if (node) this.show(node);
    else if (edge) this.showEdge(edge);
  }

  key(event) {
    const [node, edge] = [this.nodeOf(event), this.edgeOf(event)];
    if ((node || edge) && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      this.open(node, edge);
    } else if (event.key === "Escape") {
      this.card.hidden = true;
    } else if (event.key === "+" || event.key === "-") {
      this.zoom(event.key === "-" ? 1.15 : 0.87);
    }
  }

  press(event) {
    const what = event.target.closest("[data-graph-do]")?.dataset.graphDo;
    if (what === "in") this.zoom(0.8);
    if (what === "out") this.zoom(1.25);
    if (what === "fit") this.fit();
  }

  hold(event) {
    const [node, edge] = [this.nodeOf(event), this.edgeOf(event)];
    const start = { x: event.clientX, y: event.clientY, box: { ...this.box }, node: node && { x: node.x, y: node.y } };
    const scale = this.box.width / this.svg.clientWidth;
    let moved = false;
    const move = (now) => {
      const dx = (now.clientX - start.x) * scale;
      const dy = (now.clientY - start.y) * scale;
      moved ||= Math.hypot(dx, dy) > 3 * scale;
      if (node) {
        Object.assign(node, { x: start.node.x + dx, y: start.node.y + dy, held: true });
        this.move(node);
      } else {
        this.look({ ...start.box, x: start.box.x - dx, y: start.box.y - dy });
      }
    };
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      if (!moved) this.open(node, edge);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }

  show(node) {
    this.tell(
      `${node.label}: ${node.title}`,
      node.properties,
      this.button("Expand", () => this.grow(node)),
      this.button("Hide", () => this.hide(node)),
    );
  }

  showEdge(edge) {
    const [from, to] = [this.nodes.get(edge.from), this.nodes.get(edge.to)];
    this.tell(`${from.title} → ${edge.type} → ${to.title}`, edge.properties);
  }

  tell(words, properties, ...buttons) {
    const title = document.createElement("h2");
    title.textContent = words;
    const list = document.createElement("dl");
    for (const [name, value] of Object.entries(properties)) {
      const row = document.createElement("div");
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = name;
      text.textContent = value === null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value);
      row.append(term, text);
      list.append(row);
    }
    const actions = document.createElement("p");
    actions.append(...buttons, this.button("Close", () => { this.card.hidden = true; }));
    this.card.replaceChildren(title, list, actions);
    this.card.hidden = false;
  }

  button(text, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", press);
    return made;
  }

  async grow(node) {
    try {
      const more = await this.expand(this.place, node);
      this.add({ ...more, found: this.nodes.size });
      this.write(more.query);
      this.fit();
    } catch (problem) {
      this.card.append(Object.assign(document.createElement("p"), { className: "problem", textContent: problem.message }));
    }
  }

  hide(node) {
    this.nodes.delete(node.id);
    for (const [id, edge] of this.edges) if (edge.from === node.id || edge.to === node.id) this.edges.delete(id);
    this.card.hidden = true;
    this.render();
  }

  zoom(by) {
    const { x, y, width, height } = this.box;
    this.look({ x: x + (width * (1 - by)) / 2, y: y + (height * (1 - by)) / 2, width: width * by, height: height * by });
  }

  fit() {
    const nodes = [...this.nodes.values()];
    if (nodes.length === 0) return;
    const xs = nodes.map((node) => node.x);
    const ys = nodes.map((node) => node.y);
    const middle = { x: (Math.min(...xs) + Math.max(...xs)) / 2, y: (Math.min(...ys) + Math.max(...ys)) / 2 };
    const width = Math.max(Math.max(...xs) - Math.min(...xs) + 120, 520);
    const height = Math.max(Math.max(...ys) - Math.min(...ys) + 90, 380);
    this.look({ x: middle.x - width / 2, y: middle.y - height / 2, width, height });
  }

  look(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
  }
}

function pair(edge) {
  return edge.from < edge.to ? `${edge.from} ${edge.to}` : `${edge.to} ${edge.from}`;
}

function make(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
