for (const place of document.querySelectorAll(".math")) {
    katex.render(place.textContent, place, { displayMode: place.nodeName === "DIV" });
}
