"use strict";
(async () => {
  const places = [...document.querySelectorAll("[data-picture]")];
  const unpacked = async (name) => {
    const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const say = (problem) => {
    for (const place of places) if (!place.firstChild) place.textContent = problem;
  };
  if (typeof DecompressionStream === "undefined") {
    say("This browser is too old to draw the pictures.");
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("library");
  document.head.append(library);
  const pictures = JSON.parse(await unpacked("pictures"));
  const isTouched = matchMedia("(pointer: coarse)").matches; // there, dragging moves the page
  const settings = {
    responsive: true, displaylogo: false, displayModeBar: isTouched ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  const draw = (place) => {
    const { data, layout } = pictures[place.dataset.picture];
    if (isTouched) layout.dragmode = false;
    return Plotly.newPlot(place, data, layout, settings);
  };
  const waiting = [...places];
  // one after another, so that the page can be scrolled and read meanwhile
  while (waiting.length) {
    await draw(waiting.shift());
    await new Promise((next) => setTimeout(next));
  }
  document.documentElement.dataset.drawn = String(places.length);
  const PAPER_PX = 690;
  addEventListener("beforeprint", () => {
    for (const place of places) {
      const width = place.closest(".grid") ? (PAPER_PX - 18) / 2 : PAPER_PX;
      Plotly.relayout(place, { autosize: false, width });
    }
  });
  addEventListener("afterprint", () => {
    for (const place of places) Plotly.relayout(place, { autosize: true, width: null });
  });
})();
