// Charts by uPlot, from the JSON beside them (see templates/parts/chart.html for its shape). Loaded only where a page has
// one. Colours are the stylesheet's tokens, drawn anew when the theme or the zone changes; all charts of a page share one pointer.
import { whenDrawn } from "./page.js";
import { exact, zone } from "./times.js";

const HEIGHT = 160;
const charts = new Map(); // figure -> {plot, text}
let library = null;

function load() {
  library ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("./vendor/uplot.min.css", import.meta.url);
    const script = document.createElement("script");
    script.src = new URL("./vendor/uplot.min.js", import.meta.url);
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(style, script);
  });
  return library;
}

// A token's value is known only where it is used: light-dark() is resolved by the browser.
function color(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${token})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faded(value, share) {
  const [red, green, blue] = value.match(/[\d.]+/g);
  return `rgb(${red} ${green} ${blue} / ${share * 100}%)`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.1 && value > 0) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${number(value)} s`;
  if (value < 3600) return `${number(value / 60)} min`;
  return value < 86400 ? `${number(value / 3600)} h` : `${number(value / 86400)} d`;
}

const formatter = (unit) => (unit === "seconds" ? seconds : number);

// Pauses, drains, deploys: dashed lines with a small flag at the top.
function marks(data) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("wait");
    ctx.lineWidth = devicePixelRatio;
    for (const mark of data.marks ?? []) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillRect(x, bbox.top, 5 * devicePixelRatio, 5 * devicePixelRatio);
    }
    ctx.restore();
  };
}

function tip(data) {
  const format = formatter(data.unit);
  let box = null;
  return {
    init: (plot) => {
      box = document.createElement("div");
      box.className = "plot-tip";
      box.hidden = true;
      plot.over.append(box);
    },
    setCursor: (plot) => {
      const place = plot.cursor.idx;
      if (place === null || place === undefined) {
        box.hidden = true;
        return;
      }
      const at = plot.data[0][place];
      const width = plot.data[0].length > 1 ? plot.data[0][1] - plot.data[0][0] : 60;
      const values = data.lines.map((line) => `${line.name} ${format(line.values[place])}`);
      const near = (data.marks ?? []).filter((mark) => Math.abs(mark.at - at) <= width).map((mark) => mark.name);
      box.textContent = [exact(new Date(at * 1000)).slice(0, 19), ...values, ...near].join(" · ");
      box.hidden = false;
      const left = plot.cursor.left;
      const most = plot.over.clientWidth - box.offsetWidth;
      box.style.left = `${Math.max(0, Math.min(left + 10, most))}px`;
    },
  };
}

function options(uPlot, data, width) {
  const soft = color("soft");
  const axis = { stroke: soft, font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: color("line"), width: 1 } };
  const format = formatter(data.unit);
  const hover = tip(data);
  return {
    width,
    height: HEIGHT,
    padding: [6, 4, 0, 0],
    legend: { show: false },
    tzDate: (seconds) => (zone() === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    cursor: { sync: { key: "paddock" }, y: false, points: { size: 5 }, drag: { x: false, y: false } },
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.08 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 24, values: [[86400, "{MMM} {D}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, text]) => [step, text, null, null, null, null, null, null, 1]) },
      { ...axis, size: 44, values: (_, values) => values.map(format) },
    ],
    series: [
      {},
      ...data.lines.map((line, place) => {
        const stroke = color(line.tone ?? "accent");
        return { label: line.name, stroke, width: 1.5, dash: line.dashed ? [4, 3] : undefined, fill: place === 0 && !line.dashed ? faded(stroke, 0.08) : undefined, points: { show: false } };
      }),
    ],
    hooks: { init: [hover.init], setCursor: [hover.setCursor], draw: [marks(data)] },
  };
}

const rows = (data) => [data.at, ...data.lines.map((line) => line.values)];

function draw(uPlot, figure) {
  const text = figure.querySelector('script[type="application/json"]').textContent;
  const known = charts.get(figure);
  if (known?.text === text) return;
  known?.plot.destroy();
  const data = JSON.parse(text);
  const target = figure.querySelector("[data-plot]");
  const plot = new uPlot(options(uPlot, data, target.clientWidth), rows(data), target);
  charts.set(figure, { plot, text });
}

function drawAgain(uPlot) {
  for (const figure of [...charts.keys()]) {
    charts.get(figure).plot.destroy();
    charts.delete(figure);
    if (figure.isConnected) draw(uPlot, figure);
  }
}

export async function start() {
  const uPlot = await load();
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = charts.get(target.closest("[data-chart]"));
      if (known && known.plot.width !== target.clientWidth) known.plot.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  });
  whenDrawn((element) => {
    for (const figure of element.querySelectorAll("[data-chart]")) {
      draw(uPlot, figure);
      observer.observe(figure.querySelector("[data-plot]"));
    }
  });
  for (const choice of ["paddock:theme", "paddock:zone"]) document.addEventListener(choice, () => drawAgain(uPlot));
}
