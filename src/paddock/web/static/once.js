// A page that answers a form and shows a secret: a reload must neither send the form again nor show the secret again.
const shown = document.querySelector("[data-once]");
if (shown) history.replaceState(null, "", shown.dataset.once);
