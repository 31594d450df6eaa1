// Names for what the theme and the gallery show without text, for screen readers.
for (const toggle of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    toggle.setAttribute("aria-label", "Show or hide the pages below");
}
for (const link of document.querySelectorAll(".sphx-glr-thumbcontainer a")) {
    link.setAttribute("aria-label", link.textContent);
}
