"use strict";
// Draws the plots of the page from the JSON beside it. A plot's state is what its reader chose.
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => css("--theme") === "dark";
  // Colours that are too near to a dark page are lightened.
  const DARK = { "#000000": "#e7eaee", "#0072B2": "#3b93d0", "#56B4E9": "#a9dcf7", "#777777": "#9aa3ad", "#999933": "#c2c25a",
    "#B5B5B5": "#5b636d" };
  const ink = (colour) => (dark() && DARK[colour]) || colour;
  const NARROW = 520;

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const config = () => ({ background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: css("--ink"), titleColor: css("--ink"), gridColor: css("--line"), domainColor: css("--muted"),
      tickColor: css("--muted"), titleFontWeight: "normal" },
    legend: { labelColor: css("--ink"), titleColor: css("--ink"), titleFontWeight: "normal" } });

  // The view that was chosen, as wide as its place, in the colours of the page and on the axes that were asked for.
  function specification(plot, state, width) {
    const spec = JSON.parse(JSON.stringify(plot.views[state.view].spec).replace(/#[0-9A-Fa-f]{6}/g, ink));
    const narrow = width < NARROW;
    spec.data = { values: plot.data };
    spec.config = config();
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding" };
    spec.padding = { left: 2, top: 6, bottom: 4, right: 16 };
    // Names beside the lines: a phone has no room for them, and on another scale they would meet. The legend has them too.
    const unnamed = plot.legend.length && (narrow || state.logs.y !== undefined);
    if (unnamed) spec.layer = spec.layer.filter((layer) => layer.mark.type !== "text" && layer.name !== "leaders");
    for (const param of spec.params || []) if (param.name in state.menus) param.value = state.menus[param.name];
    for (const param of spec.params || []) if (param.name === "hidden") param.value = [...state.hidden];
    for (const layer of plot.logs ? spec.layer : []) for (const channel of ["x", "y"]) {
      const place = layer.encoding?.[channel], wanted = state.logs[channel];
      if (place?.scale && wanted !== undefined) {
        place.scale = { ...place.scale, type: wanted ? "log" : "linear", nice: !wanted, zero: wanted ? undefined : false };
        place.title = place.title?.replace(" (log scale)", "") + (wanted ? " (log scale)" : "");
      }
    }
    return spec;
  }

  async function draw(figure, plot, state) {
    const canvas = figure.querySelector(".canvas");
    state.drawing = (state.drawing || Promise.resolve()).then(async () => {
      state.result?.finalize();
      state.width = canvas.clientWidth;
      state.result = await vegaEmbed(canvas, specification(plot, state, state.width),
        { mode: "vega-lite", renderer: "svg", actions: false, ast: true, logLevel: 1, tooltip: { theme: dark() ? "dark" : "light" } });
      figure.view = state.result.view;
      for (const param of plot.views[state.view].spec.params || []) {
        if (param.bind) figure.view.addSignalListener(param.name, (name, value) => { state.menus[name] = value; });
      }
      drawLegend(figure, plot, state);
    });
    await state.drawing;
  }

  function swatch(one) {
    const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "line");
    for (const [k, v] of Object.entries({ width: 24, height: 8, "aria-hidden": "true" })) svg.setAttribute(k, v);
    for (const [k, v] of Object.entries({ x1: 0, y1: 4, x2: 24, y2: 4, stroke: ink(one.colour), "stroke-width": 3, "stroke-dasharray": one.dash.join(" ") })) line.setAttribute(k, v);
    svg.append(line);
    return svg;
  }

  function drawLegend(figure, plot, state) {
    figure.querySelector(".legend").replaceChildren(...plot.legend.map((one) => {
      const button = element("button", { type: "button", "aria-pressed": !state.hidden.has(one.name) }, swatch(one), one.name);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(one.name)) state.hidden.add(one.name);
        button.setAttribute("aria-pressed", !state.hidden.has(one.name));
        figure.view.signal("hidden", [...state.hidden]).runAsync();
      });
      return button;
    }));
  }

  // Buttons for each choice that leads to another view: the quantity shown, and what it is shown against.
  function choices(plot, state, redraw) {
    const chosen = [...plot.views[0].buttons];
    return chosen.map((_, place) => {
      const names = [...new Set(plot.views.map((view) => view.buttons[place]))];
      const group = element("span", { class: "choice", role: "group", "aria-label": place ? "Against" : "Shown" });
      for (const name of names) {
        const button = element("button", { type: "button", "aria-pressed": name === chosen[place] }, name);
        button.addEventListener("click", () => {
          chosen[place] = name;
          for (const other of group.children) other.setAttribute("aria-pressed", other === button);
          state.view = plot.views.findIndex((view) => view.buttons.every((word, i) => word === chosen[i]));
          state.logs = {};
          redraw();
        });
        group.append(button);
      }
      return group;
    });
  }

  function isLog(plot, state, channel) {
    if (state.logs[channel] !== undefined) return state.logs[channel];
    return plot.views[state.view].spec.layer.some((layer) => layer.encoding?.[channel]?.scale?.type === "log");
  }

  function toggles(plot, state, redraw) {
    const group = element("span", { class: "choice", role: "group", "aria-label": "Log axes" });
    for (const channel of ["x", "y"]) {
      const button = element("button", { type: "button", "data-axis": channel }, `log ${channel}`);
      button.addEventListener("click", () => { state.logs[channel] = !isLog(plot, state, channel); redraw(); });
      group.append(button);
    }
    return group;
  }

  const drawn = plots.map((plot, i) => {
    const figure = document.querySelector(`[data-plot="${i}"]`), controls = figure.querySelector(".controls");
    const state = { view: 0, hidden: new Set(), menus: {}, logs: {} };
    const redraw = async () => {
      for (const button of controls.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", isLog(plot, state, button.dataset.axis));
      await draw(figure, plot, state);
    };
    controls.append(...choices(plot, state, redraw), ...(plot.logs ? [toggles(plot, state, redraw)] : []));
    return { figure, state, redraw };
  });
  const drawAll = () => Promise.all(drawn.map(({ redraw }) => redraw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  matchMedia("print").addEventListener("change", drawAll);
  addEventListener("resize", () => drawn.forEach(({ figure, state, redraw }) => {
    const width = figure.querySelector(".canvas").clientWidth;
    if ((width < NARROW) !== (state.width < NARROW)) redraw();
  }));
  drawAll().then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
