// Runs before the first paint, so that a chosen theme never flashes the other one. Without a choice the system's
// preference holds, in CSS alone.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("alphafair.theme");
  } catch {
    // storage is blocked: the system's preference holds
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
