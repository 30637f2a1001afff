// The one script a page loads: starts the others, each of which is about one thing.
import * as theme from "./theme.js";

theme.start();
