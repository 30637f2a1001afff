// Asks before a form with data-confirm is sent: the question, what will happen (data-effect), and for data-reason why.
// A form with several buttons has it on each button instead: what is asked is that of the button which was pressed.
// Without this script the form is sent at once. A form that was sent is not sent twice.
import { on } from "./page.js";

const confirmed = new WeakSet();

function ask(form, button, asked) {
  const dialog = document.getElementById("confirm");
  const { confirm, effect, label, tone, keep } = asked.dataset;
  dialog.querySelector("h2").textContent = confirm;
  document.getElementById("confirm-effect").textContent = effect;
  const reason = document.getElementById("confirm-reason");
  reason.hidden = !("reason" in asked.dataset);
  const field = reason.querySelector("input");
  field.value = "";
  const yes = dialog.querySelector("button[value=yes]");
  yes.textContent = label;
  yes.className = tone ? `primary tone-${tone}` : "primary";
  dialog.querySelector('button[value=""]').textContent = keep ?? "Cancel";
  dialog.returnValue = "";
  dialog.addEventListener(
    "close",
    () => {
      if (dialog.returnValue !== "yes") return;
      if (form.elements.reason) form.elements.reason.value = field.value;
      confirmed.add(form);
      // A row may have lost the button meanwhile: its job has ended.
      form.requestSubmit(button?.form === form ? button : null);
    },
    { once: true },
  );
  dialog.showModal();
  (reason.hidden ? yes : field).focus();
}

export function start() {
  on("form", "submit", (event, form) => {
    if (form.method !== "post") return;
    const asked = event.submitter?.dataset.confirm ? event.submitter : form;
    if (asked.dataset.confirm && !confirmed.has(form)) {
      event.preventDefault();
      ask(form, event.submitter, asked);
      return;
    }
    confirmed.delete(form);
    // A download leaves the page as it is, and its buttons are wanted again.
    if (event.submitter?.dataset.downloads !== undefined) return;
    // After the browser has taken the form's fields, which a disabled button would not be among.
    setTimeout(() => form.querySelectorAll("button").forEach((button) => (button.disabled = true)));
  });
  // Enter in the reason means yes, not the first button, which is the way out.
  on("#confirm input", "keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    document.getElementById("confirm").close("yes");
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) document.querySelectorAll("form button:disabled").forEach((button) => (button.disabled = false));
  });
}
