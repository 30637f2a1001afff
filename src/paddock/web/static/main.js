// The one script a page loads: starts the others, each of which is about one thing. A page with a script of its own
// loads it in its `scripts` block: <script type="module" src="{{ asset('pages/jobs.js') }}"></script>.
import * as announce from "./announce.js";
import * as confirm from "./confirm.js";
import * as copy from "./copy.js";
import * as live from "./live.js";
import * as palette from "./palette.js";
import * as theme from "./theme.js";
import * as times from "./times.js";

for (const script of [theme, times, copy, confirm, announce, palette, live]) script.start();
if (document.querySelector("[data-chart]")) import("./charts.js").then((charts) => charts.start());
// On a phone the navigation is a strip that scrolls.
document.querySelector(".pages [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
