// Before the first paint: the theme that was chosen here, or the system's; and that scripts run, for what needs them.
document.documentElement.classList.add("scripted");
try {
  const chosen = localStorage.getItem("paddock-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: the system decides.
}
