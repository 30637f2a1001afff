// Marks in an editor's text where it was refused. A mark goes when somebody edits its line: the answer was about another text.
import { Decoration, EditorView, GutterMarker, gutterLineClass, RangeSet, StateEffect, StateField } from "./vendor/codemirror.min.js";

const setMarks = StateEffect.define();

class LineNumber extends GutterMarker {
  constructor(elementClass) {
    super();
    this.elementClass = elementClass;
  }
}

const numbers = { "cm-wrong-line": new LineNumber("cm-wrong-line"), "cm-doubtful-line": new LineNumber("cm-doubtful-line") };

// The starts of refused lines, and what is refused in each.
const field = StateField.define({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) if (effect.is(setMarks)) return effect.value;
    if (!transaction.docChanged) return marks;
    const before = transaction.startState.doc;
    const untouched = (from) => !transaction.changes.touchesRange(from, before.lineAt(from).to);
    return marks.update({ filter: (from) => untouched(before.lineAt(from).from) }).map(transaction.changes);
  },
  provide: (marks) => [EditorView.decorations.from(marks), gutterLineClass.from(marks, numbersOf)],
});

export const marking = field;

function numbersOf(marks) {
  const starts = [];
  marks.between(0, Infinity, (from, _, mark) => void (mark.spec.isLine && starts.push(numbers[mark.spec.class].range(from))));
  return RangeSet.of(starts);
}

export function showMarks(view, answer, id) {
  const places = [...answer.querySelectorAll("[data-go-to-line]")].filter((place) => place.dataset.goTo === id);
  const ranges = places.flatMap((place) => rangesOf(view.state, place));
  view.dispatch({ effects: setMarks.of(Decoration.set(ranges, true)) });
}

function rangesOf(state, place) {
  const number = Number(place.dataset.goToLine);
  if (!(number >= 1 && number <= state.doc.lines)) return [];
  const line = state.doc.line(number);
  const title = place.closest("li, section")?.querySelector(".message, li > p")?.textContent ?? "";
  const kind = place.closest("[data-warning]") ? "cm-doubtful-line" : "cm-wrong-line";
  const found = [Decoration.line({ class: kind, attributes: { title }, isLine: true }).range(line.from)];
  const [from, to] = wordAt(state, line, Number(place.dataset.goToColumn));
  if (from < to) found.push(Decoration.mark({ class: "cm-wrong" }).range(from, to));
  return found;
}

// The word at a column, one letter where no word is, nothing where no column is known.
function wordAt(state, line, column) {
  if (!column) return [line.from, line.from];
  const at = Math.min(line.from + column - 1, Math.max(line.from, line.to - 1));
  const word = state.wordAt(at);
  return word ? [word.from, word.to] : [at, Math.min(at + 1, line.to)];
}
