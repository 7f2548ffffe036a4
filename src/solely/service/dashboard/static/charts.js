// Draws the charts of a page with uPlot, and shows the values under the cursor. Without it, pages show them as pictures.
"use strict";
(() => {
  const drawn = new Map(); // id of the figure → chart
  const ink = (element) => getComputedStyle(element).color;
  const DAY = 86400;

  function ticks(plot, moments) {
    const [first, last] = [plot.scales.x.min, plot.scales.x.max];
    return moments.map((at) => {
      const text = new Date(at * 1000).toISOString();
      if (last - first > 2 * DAY) return text.slice(5, 10);
      return text.slice(11, last - first < 300 ? 19 : 16);
    });
  }

  function number(value, unit) {
    if (value === null || value === undefined) return "–";
    const digits = value >= 100 ? 0 : value >= 1 ? 1 : 2;
    return `${value.toFixed(value === 0 ? 0 : digits)}${unit}`;
  }

  // The values under the cursor; where there is none, those of the last moment.
  function show(figure, plot) {
    const [moments, ...lines] = plot.data;
    const count = moments.length;
    const last = moments.findLastIndex((_, index) => lines.some((line) => line[index] !== null));
    const index = plot.cursor.idx ?? (last < 0 ? count - 1 : last);
    const time = figure.querySelector("time.at");
    figure.querySelectorAll(".legend [data-line]").forEach((entry, place) => {
      entry.querySelector(".value").textContent = count ? number(plot.data[place + 1][index], figure.dataset.unit) : "";
    });
    time.textContent = count ? `${new Date(plot.data[0][index] * 1000).toISOString().slice(5, 19).replace("T", " ")}` : "";
    figure.classList.toggle("pointed", plot.cursor.idx !== null && plot.cursor.idx !== undefined);
  }

  function made(figure, data) {
    const plot = figure.querySelector(".plot");
    const soft = ink(figure.querySelector("figcaption"));
    const grid = { stroke: getComputedStyle(figure).borderTopColor, width: 1 };
    const font = `13px ${getComputedStyle(document.body).fontFamily}`;
    plot.replaceChildren();
    return new uPlot({
      width: plot.clientWidth,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 7 }, sync: { key: "charts" } },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [
        { stroke: soft, grid: { show: false }, ticks: { show: false }, font, size: 28, space: 80, values: ticks },
        { stroke: soft, grid, ticks: { show: false }, font, size: 48, space: 36 },
      ],
      series: [{}, ...[...figure.querySelectorAll(".legend [data-line]")].map((entry, place) => ({
        label: entry.dataset.line,
        stroke: ink(entry),
        width: 1.5,
        dash: [undefined, [8, 4], [3, 3], [8, 3, 2, 3]][place],
        points: { show: false },
        spanGaps: false,
      }))],
      hooks: { setCursor: [(chart) => show(figure, chart)], setData: [(chart) => show(figure, chart)] },
    }, data, plot);
  }

  function draw() {
    if (typeof uPlot === "undefined") return;
    for (const series of document.querySelectorAll("data.series")) {
      const figure = document.getElementById(series.dataset.for);
      const { at, lines } = JSON.parse(series.value);
      if (!figure || at.length < 2) continue;
      const names = [...figure.querySelectorAll(".legend [data-line]")].map((entry) => entry.dataset.line);
      const data = [at, ...names.map((name) => lines[name])];
      const known = drawn.get(figure.id);
      if (known && known.figure === figure) {
        known.chart.setData(data);
      } else {
        known?.chart.destroy();
        const chart = made(figure, data);
        drawn.set(figure.id, { figure, chart });
        show(figure, chart);
      }
    }
  }

  function redraw() {
    for (const { chart } of drawn.values()) chart.destroy();
    drawn.clear();
    draw();
  }

  window.charts = { draw, redraw };
  draw();
})();
