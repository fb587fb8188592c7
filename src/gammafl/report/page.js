"use strict";
// Draws the plots of the page from the JSON beside it. A plot's state is what its reader chose.
(() => {
  const specs = JSON.parse(document.getElementById("plots").textContent);
  const coarse = matchMedia("(pointer: coarse)").matches;
  const CONFIG = { responsive: true, displayModeBar: false };
  const DASHES = ["solid", "dash", "dot", "dashdot"];

  // Plotly reads a little HTML in its texts; names are not HTML.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => css("--theme") === "dark";
  // Colours that are too near to a dark page are lightened, and their neighbours with them.
  const DARK = { "#000000": "#e7eaee", "#0072B2": "#3b93d0", "#56B4E9": "#a9dcf7", "#777777": "#9aa3ad", "#999933": "#c2c25a" };
  const ink = (colour) => (Array.isArray(colour) ? colour.map(ink) : (dark() && DARK[colour]) || colour);

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function axis(label) {
    const line = css("--line");
    return { title: { text: plain(label || ""), standoff: 8 }, gridcolor: line, linecolor: line, zerolinecolor: css("--muted"),
      zeroline: false, automargin: true };
  }

  function layout(extra) {
    return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--ink"), size: 12, family: "system-ui, sans-serif" },
      margin: { l: 8, r: 12, t: 10, b: 8 }, showlegend: false, dragmode: coarse ? false : "zoom", hovermode: "closest",
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } }, height: 380, ...extra };
  }

  // Curves: what is shown, against what, for which settings, on which axes.

  function start(spec) {
    return { x: 0, y: 0, logX: spec.x[0].log, logY: spec.y[0].log, hidden: new Set(),
      levels: Object.fromEntries(spec.factors.map((factor) => [factor.name, factor.chosen])) };
  }

  function shown(spec, state) {
    const fixed = (factor) => state.levels[factor] !== undefined && state.levels[factor] !== "";
    const series = spec.series.filter((one) => Object.entries(one.cell).every(([f, level]) => !fixed(f) || state.levels[f] === level));
    const named = series.map((one) => {
      const open = Object.entries(one.label).filter(([factor]) => !fixed(factor)).map(([, text]) => text);
      return { ...one, name: open.join(", ") || Object.values(one.label).join(", ") };
    });
    return coloured(named, spec.palette);
  }

  // Their own colours where these tell them apart; else the palette, first in solid lines, then dashed.
  function coloured(series, palette) {
    const looks = series.filter((one) => one.colour).map((one) => one.colour + one.dash);
    if (new Set(looks).size < looks.length) {
      return series.map((one, i) => ({ ...one, colour: palette[i % palette.length], dash: DASHES[Math.floor(i / palette.length) % DASHES.length] }));
    }
    const free = palette.filter((colour) => !series.some((one) => one.colour === colour));
    let next = 0;
    return series.map((one) => (one.colour ? one : { ...one, colour: (free.length ? free : palette)[next++ % (free.length || palette.length)] }));
  }

  function band(one, x, key, logY, visible) {
    const low = one.low[key], high = one.high[key];
    if (!low || !x) return [];
    const good = x.map((_, i) => i).filter((i) => x[i] !== null && low[i] !== null && high[i] !== null && (!logY || low[i] > 0));
    const back = [...good].reverse();
    return [{ x: [...good.map((i) => x[i]), ...back.map((i) => x[i])], y: [...good.map((i) => high[i]), ...back.map((i) => low[i])],
      type: "scatter", mode: "lines", fill: "toself", fillcolor: ink(one.colour), opacity: 0.1, line: { width: 0 }, hoverinfo: "skip", visible }];
  }

  function traces(spec, state) {
    const x = spec.x[state.x], y = spec.y[state.y];
    return shown(spec, state).flatMap((one) => {
      const visible = !state.hidden.has(one.name);
      const line = { x: one.values[x.key], y: one.values[y.key], type: "scatter", mode: "lines", name: one.name, visible,
        connectgaps: true, line: { color: ink(one.colour), dash: one.dash, width: one.width },
        hovertemplate: `<b>${plain(one.name)}</b><br>${plain(x.button || x.label)} %{x:,.4~s}${x.unit}<br>${plain(y.button || y.label)} %{y:.4~g}${y.unit}<extra></extra>` };
      return [...band(one, one.values[x.key], y.key, state.logY, visible), line];
    });
  }

  function drawCurves(figure, spec, state) {
    const x = spec.x[state.x], y = spec.y[state.y];
    const ticks = x.unit === "B" ? { tickformat: "~s", ticksuffix: "B" } : { tickformat: "~s" };
    const data = traces(spec, state);
    const scale = (log, key) => (log ? logarithmic(data.flatMap((trace) => (trace.visible && trace[key]) || [])) : { type: "linear" });
    const empty = { text: "nothing to show here", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false };
    Plotly.react(figure.querySelector(".canvas"), data, layout({
      xaxis: { ...axis(x.label), nticks: 7, ...ticks, ...scale(state.logX, "x") },
      yaxis: { ...axis(y.label), nticks: 8, tickformat: "~g", ...scale(state.logY, "y") },
      annotations: data.some((trace) => trace.visible && somewhere(trace, state)) ? [] : [empty],
    }), CONFIG);
    drawLegend(figure, spec, state);
  }

  const somewhere = (trace, state) => (trace.y || []).some((y, i) => y !== null && (!state.logY || y > 0) && (!state.logX || trace.x[i] > 0));

  // Whole powers of ten where there are several, else 1, 2 and 5.
  function logarithmic(values) {
    const positive = values.filter((value) => value > 0).map(Math.log10);
    const decades = positive.length ? Math.max(...positive) - Math.min(...positive) : 0;
    return { type: "log", dtick: decades > 1.5 ? Math.ceil(decades / 6) : decades > 0.4 ? "D2" : undefined };
  }

  function swatch(one) {
    const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "line");
    const dash = { dash: "5 3", dot: "2 3", dashdot: "6 3 2 3" }[one.dash] || "";
    for (const [k, v] of Object.entries({ width: 24, height: 8, "aria-hidden": "true" })) svg.setAttribute(k, v);
    for (const [k, v] of Object.entries({ x1: 0, y1: 4, x2: 24, y2: 4, stroke: ink(one.colour), "stroke-width": 3, "stroke-dasharray": dash })) line.setAttribute(k, v);
    svg.append(line);
    return svg;
  }

  function drawLegend(figure, spec, state) {
    const legend = figure.querySelector(".legend"), series = shown(spec, state);
    const names = series.map((one) => one.name), focused = document.activeElement?.dataset?.name;
    legend.replaceChildren(...series.map((one) => {
      const button = element("button", { type: "button", "data-name": one.name, "aria-pressed": !state.hidden.has(one.name),
        title: "press to hide or show, twice to see it alone" }, swatch(one), one.name);
      button.addEventListener("click", (event) => {
        if (event.detail === 2) {
          const alone = names.every((name) => (name === one.name) !== state.before.has(name));
          state.hidden = new Set(alone ? [] : names.filter((name) => name !== one.name));
        } else {
          state.before = new Set(state.hidden);
          if (!state.hidden.delete(one.name)) state.hidden.add(one.name);
        }
        drawCurves(figure, spec, state);
      });
      return button;
    }));
    if (focused) [...legend.children].find((button) => button.dataset.name === focused)?.focus();
  }

  function choice(label, options, current, choose) {
    const group = element("span", { class: "choice", role: "group", "aria-label": label });
    options.forEach((text, i) => {
      const button = element("button", { type: "button", "aria-pressed": i === current }, text);
      button.addEventListener("click", () => {
        [...group.children].forEach((other) => other.setAttribute("aria-pressed", other === button));
        choose(i);
      });
      group.append(button);
    });
    return group;
  }

  function toggles(state, redraw) {
    const group = element("span", { class: "choice", role: "group", "aria-label": "Log axes" });
    for (const [key, text] of [["logX", "log x"], ["logY", "log y"]]) {
      const button = element("button", { type: "button", "data-axis": key, "aria-pressed": state[key] }, text);
      button.addEventListener("click", () => { state[key] = !state[key]; redraw(); });
      group.append(button);
    }
    return group;
  }

  function menu(factor, state, redraw) {
    const select = element("select", {}, element("option", { value: "" }, "all"),
      ...factor.levels.map((level) => element("option", { value: level }, level)));
    select.value = state.levels[factor.name];
    select.addEventListener("change", () => { state.levels[factor.name] = select.value; state.hidden.clear(); redraw(); });
    return element("label", {}, `${factor.name} `, select);
  }

  function curves(figure, spec) {
    const state = start(spec), controls = figure.querySelector(".controls");
    const redraw = () => {
      for (const button of controls.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", state[button.dataset.axis]);
      drawCurves(figure, spec, state);
    };
    if (spec.y.length > 1) controls.append(choice("Shown", spec.y.map((y) => y.button), 0, (i) => { state.y = i; state.logY = spec.y[i].log; redraw(); }));
    if (spec.x.length > 1) controls.append(choice("Against", spec.x.map((x) => x.button), 0, (i) => { state.x = i; redraw(); }));
    controls.append(toggles(state, redraw), ...spec.factors.filter((factor) => factor.menu).map((factor) => menu(factor, state, redraw)));
    return redraw;
  }

  // Heat maps and intervals: as they are, in the colours of the page.

  function fixed(figure, spec) {
    return () => {
      const { labels = [], xaxis = {}, yaxis = {}, ...rest } = spec.layout;
      const annotations = labels.map(({ y, text }) => ({ x: 0, xref: "paper", xanchor: "left", y, yshift: 15, text: plain(text), showarrow: false }));
      const coloured = spec.traces.map((trace) => ({ ...trace,
        ...(trace.text && !trace.texttemplate ? { text: trace.text.map(plain) } : {}),
        ...(trace.marker ? { marker: { ...trace.marker, color: ink(trace.marker.color) } } : {}),
        ...(trace.line ? { line: { ...trace.line, color: ink(trace.line.color) } } : {}),
        ...(trace.type === "heatmap" ? { x: trace.x.map(plain), y: trace.y.map(plain) } : {}) }));
      const across = { ...axis(xaxis.title?.text), ...xaxis, title: axis(xaxis.title?.text).title };
      Plotly.react(figure.querySelector(".canvas"), coloured, layout({ ...rest, annotations, xaxis: across, yaxis: { ...axis(""), ...yaxis } }), CONFIG);
    };
  }

  const redraws = specs.map((spec, i) => {
    const figure = document.querySelector(`[data-plot="${i}"]`);
    return (spec.kind === "curves" ? curves : fixed)(figure, spec);
  });
  const drawAll = () => redraws.forEach((redraw) => redraw());
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  matchMedia("print").addEventListener("change", drawAll);
  document.documentElement.dataset.drawn = "yes";
})();
