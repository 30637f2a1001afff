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

// In the words of words.py.
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.0995) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 9.95) return `${Number(value.toFixed(1))} s`;
  const whole = Math.round(value);
  for (const [size, unit, smaller, smallerUnit] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / smaller);
    return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${smallerUnit}` : `${Math.floor(whole / size)} ${unit}`;
  }
  return `${whole} s`;
}

// For an axis, which has room for one unit: 1.5 min.
function shortSeconds(value) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => value >= size) ?? [1, "s"];
  return size === 1 ? seconds(value) : `${Number((value / size).toFixed(1))} ${unit}`;
}

const formatter = (unit) => (unit === "seconds" ? seconds : number);

// Where an axis may have its lines: whole jobs, and times that people count in.
const decades = (least, most) => Array.from({ length: most - least + 1 }, (_, n) => [1, 2, 5].map((digit) => digit * 10 ** (least + n))).flat();
const STEPS = {
  jobs: decades(0, 9),
  "jobs/s": decades(-3, 7),
  seconds: [...decades(-3, -1), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, ...[1, 2, 5, 10, 20].map((days) => days * 86400)],
};

// Pauses, drains, deploys: dashed lines, each with a flag of its letter at the top.
function drawMarks(shown) {
  return (plot) => {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const side = 12 * ratio;
    ctx.save();
    ctx.lineWidth = ratio;
    ctx.font = `600 ${9 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    const paper = color("paper");
    let free = Infinity; // newest first: a flag that would cover a newer one is left out, its line is not
    for (const mark of shown.data.marks ?? []) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = color(mark.tone ?? "wait");
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const left = Math.min(Math.max(x - side / 2, bbox.left), bbox.left + bbox.width - side);
      if (left + side > free) continue;
      free = left;
      ctx.fillRect(left, bbox.top, side, side);
      ctx.fillStyle = paper;
      ctx.fillText(mark.sign || "•", left + side / 2, bbox.top + side / 2 + ratio / 2);
    }
    ctx.restore();
  };
}

function tip(shown) {
  let box = null;
  const line = (text, className) => {
    const made = document.createElement("div");
    made.className = className;
    made.textContent = text;
    return made;
  };
  return {
    init: (plot) => {
      box = document.createElement("div");
      box.className = "plot-tip";
      box.hidden = true;
      plot.over.append(box);
    },
    setCursor: (plot) => {
      const place = plot.cursor.idx;
      const { data } = shown;
      if (place === null || place === undefined || place >= data.at.length) {
        box.hidden = true;
        return;
      }
      const at = data.at[place];
      const format = formatter(data.unit);
      const near = (data.marks ?? []).filter((mark) => mark.at >= at - data.step && mark.at < at + 2 * data.step);
      box.replaceChildren(
        line(exact(new Date(at * 1000)).slice(0, 19), "at"),
        ...data.lines.map((one) => line(`${one.name} ${format(one.values[place])}`, `tone-${one.tone}`)),
        ...near.slice(0, 3).map((mark) => line(mark.name, "mark")),
      );
      box.hidden = false;
      const { left } = plot.cursor;
      const room = plot.over.clientWidth - box.offsetWidth;
      box.style.left = `${left + 12 <= room ? left + 12 : Math.max(0, left - 12 - box.offsetWidth)}px`;
    },
  };
}

const lines = (most, step) => Array.from({ length: Math.floor(most / step) + 1 }, (_, n) => n * step);

function lineOf(uPlot, line, place, lines) {
  const stroke = color(line.tone ?? "accent");
  if (line.bars) return { label: line.name, stroke, width: 0, fill: stroke, paths: uPlot.paths.bars({ size: [0.9, 14, 2], align: 1 }), points: { show: false } };
  const filled = !line.dashed && (lines.length === 1 || place === lines.length - 1);
  // A value between two unknown ones would be no line: it is a dot.
  const alone = (plot, series) => {
    const values = plot.data[series];
    return values.flatMap((value, n) => (value !== null && (values[n - 1] ?? null) === null && (values[n + 1] ?? null) === null ? [n] : []));
  };
  return { label: line.name, stroke, width: 1.5, dash: line.dashed ? [4, 3] : undefined, fill: filled ? faded(stroke, 0.08) : undefined, points: { show: true, size: 3, fill: stroke, filter: alone } };
}

function options(uPlot, shown, width) {
  const { data } = shown;
  const axis = { stroke: color("soft"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: color("line"), width: 1 } };
  const hover = tip(shown);
  // Of an empty chart only its ground is true: no scale says 0 to 1.
  const empty = () => !shown.data.lines.some((line) => line.values.some((value) => value > 0));
  return {
    width,
    height: HEIGHT,
    padding: [6, 14, 0, 0],
    legend: { show: false },
    tzDate: (seconds) => (zone() === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    cursor: { sync: { key: "paddock" }, y: false, points: { size: 5 }, drag: { x: false, y: false } },
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.12 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 56, values: [[86400, "{MMM} {D}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, text]) => [step, text, null, null, null, null, null, null, 1]) },
      { ...axis, size: 50, space: 22, incrs: STEPS[data.unit], splits: (_, axis, least, most, step) => (empty() ? [0] : lines(most, step)), values: (_, values) => values.map(data.unit === "seconds" ? shortSeconds : number) },
    ],
    series: [{}, ...data.lines.map((line, place) => lineOf(uPlot, line, place, data.lines))],
    hooks: { init: [hover.init], setCursor: [hover.setCursor], draw: [drawMarks(shown)] },
  };
}

function read(text) {
  const data = JSON.parse(text);
  data.at = data.lines[0].values.map((_, n) => data.from + n * data.step);
  return data;
}

const rows = (data) => [data.at, ...data.lines.map((line) => line.values)];
const shape = (data) => JSON.stringify([data.unit, data.lines.map((line) => [line.name, line.tone, line.dashed, line.bars])]);

function draw(uPlot, figure) {
  const text = figure.querySelector('script[type="application/json"]').textContent;
  const known = charts.get(figure);
  if (known?.text === text) return;
  const data = read(text);
  if (known && shape(known.shown.data) === shape(data)) {
    // Figures that come later are put into what is there: the pointer stays, and nothing flickers.
    known.text = text;
    known.shown.data = data;
    known.plot.setData(rows(data));
    return;
  }
  known?.plot.destroy();
  const target = figure.querySelector("[data-plot]");
  const shown = { data };
  const plot = new uPlot(options(uPlot, shown, target.clientWidth), rows(data), target);
  charts.set(figure, { plot, text, shown });
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
