"use strict";
// One page for a finished run, whose data is in it, and for one that goes on, which it asks once per second.
// Everything shown is text in a node that was made here: nothing in the data is ever read as HTML, but the graph,
// which Stoker makes itself; and the page's policy runs no other script than this one.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 58, right: 14, top: 24, bottom: 36 };
  const STATES = { running: ["live", "live"], closed: ["", "closed: this is its last state"], ended: ["", "finished"] };
  const WAYS = [["cpu_s", "cpu", "on a core"], ["queued_s", "queued", "waiting for a free core"],
    ["lock_s", "lock", "waiting for the interpreter lock"], ["wait_s", "wait", "waiting for storage, network or sleep"]];

  // ---- nodes and numbers ----------------------------------------------------------------------------------------

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "style") Object.assign(node.style, value);
      else if (value !== undefined && value !== null) node.setAttribute(name, value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const byId = (id) => document.getElementById(id);

  function count(value) {
    if (!Number.isFinite(value)) return "–";
    return value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 10 ? 1 : 0 });
  }
  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    return value.toLocaleString("en-US", { maximumFractionDigits: size < 10 ? 2 : size < 100 ? 1 : 0 });
  }
  const percent = (share) => !Number.isFinite(share) ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
  function bytes(value) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (Math.abs(value) < 1000) return `${value < 10 && unit !== "B" ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
      value /= 1000;
    }
    return `${value.toFixed(1)} TB`;
  }
  function seconds(value) {
    const size = Math.abs(value);
    if (size === 0) return "0 s";
    if (size < 1e-3) return `${+(value * 1e6).toPrecision(3)} µs`;
    if (size < 1) return `${+(value * 1e3).toPrecision(3)} ms`;
    if (size < 120) return `${+value.toPrecision(3)} s`;
    if (size < 7200) return `${+(value / 60).toPrecision(3)} min`;
    return `${+(value / 3600).toPrecision(3)} h`;
  }
  const many = (number, one, several) => `${count(number)} ${number === 1 ? one : several || `${one}s`}`;

  /** Text with what is written in `backticks` as code. */
  const prose = (text) => text.split(/`([^`]+)`/).map((part, n) => (n % 2 ? h("code", {}, part) : part));

  function ticks(most, wanted) {
    if (!(most > 0)) return [0];
    const raw = most / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
    const found = [];
    for (let at = 0; at <= most * 1.0001; at += step) found.push(+at.toPrecision(12));
    return found;
  }

  // ---- parts of a page --------------------------------------------------------------------------------------------

  function show(id, ...children) {
    const section = byId(id);
    section.hidden = !children.length;
    if (!children.length) return;
    const open = [...section.querySelectorAll("details")].map((each) => each.open);
    const body = section.querySelector(".body");
    body.replaceChildren(...children);
    body.querySelectorAll("details").forEach((each, number) => { each.open = Boolean(open[number]); });
  }
  function table(head, rows, kind) {
    const cells = (row) => row.map((cell) => h("td", {}, String(cell)));
    const top = head.length ? [h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))] : [];
    return h("div", { class: "scroll" }, h("table", { class: kind }, ...top, rows.map((row) => h("tr", {}, cells(row)))));
  }
  const asTable = (head, rows, title) => h("details", {}, h("summary", {}, title || "As a table"), table(head, rows));
  const legend = (entries) => h("div", { class: "legend" }, entries.map(([colour, name]) =>
    h("span", {}, h("i", { style: { background: `var(--${colour})` } }), name)));

  /** A chart that draws itself as wide as there is room: `draw(width)` gives an SVG, and what to say at a place in it. */
  const drawn = [];
  function chart(title, draw) {
    const tip = h("div", { class: "tip" }), plot = h("div", { class: "plot" });
    const each = { plot, redraw() {
      const width = Math.max(220, plot.clientWidth);
      const { svg, at } = draw(width);
      plot.replaceChildren(svg, tip);
      if (!at) return;
      const line = s("line", { class: "axis", visibility: "hidden" });
      svg.append(line);
      svg.addEventListener("pointermove", (event) => {
        const place = at(event.clientX - plot.getBoundingClientRect().left);
        tip.classList.toggle("on", Boolean(place));
        line.setAttribute("visibility", place ? "visible" : "hidden");
        if (!place) return;
        tip.replaceChildren(...place.lines.map((text) => h("div", {}, text)));
        tip.style.left = `${Math.max(0, Math.min(width - tip.offsetWidth, place.x + 12))}px`;
        for (const [name, value] of Object.entries({ x1: place.x, x2: place.x, y1: place.top, y2: place.bottom })) line.setAttribute(name, value);
      });
      svg.addEventListener("pointerleave", () => { tip.classList.remove("on"); line.setAttribute("visibility", "hidden"); });
    } };
    drawn.push(each);
    return h("div", { class: "chart" }, h("h3", {}, title), plot);
  }
  function redraw() {
    for (let at = drawn.length - 1; at >= 0; at--) if (!drawn[at].plot.isConnected) drawn.splice(at, 1);
    drawn.forEach((each) => each.redraw());
  }

  /** Axes of a chart: values from 0 to `most` upwards, and seconds to the right. */
  function axes(width, height, most, unit, length, told, across) {
    const inner = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
    const x = (value) => inner.x + (length ? (value / length) * inner.w : 0);
    const y = (value) => inner.y + inner.h - (most ? (value / most) * inner.h : 0);
    const nodes = ticks(most, 4).flatMap((value) => [
      s("line", { class: "grid", x1: inner.x, x2: inner.x + inner.w, y1: y(value), y2: y(value) }),
      s("text", { x: inner.x - 8, y: y(value) + 4, "text-anchor": "end" }, told(value))]);
    const scale = length >= 7200 ? [3600, "h"] : length >= 120 ? [60, "min"] : length >= 0.5 ? [1, "s"] : [1e-3, "ms"];
    for (const value of ticks(length / scale[0], Math.max(2, inner.w / 85))) {
      const place = x(value * scale[0]);
      nodes.push(s("line", { class: "axis", x1: place, x2: place, y1: inner.y + inner.h, y2: inner.y + inner.h + 4 }),
        s("text", { class: "tick", x: place, y: inner.y + inner.h + 16, "text-anchor": "middle" }, `${short(value)}`));
    }
    nodes.push(s("line", { class: "axis", x1: inner.x, x2: inner.x + inner.w, y1: inner.y + inner.h, y2: inner.y + inner.h }),
      s("text", { class: "unit", x: 0, y: 11 }, unit),
      s("text", { class: "unit", x: inner.x + inner.w, y: height - 3, "text-anchor": "end" }, `${across} (${scale[1]})`));
    return { inner, x, y, nodes };
  }
  function picture(title, width, height, nodes) {
    return s("svg", { role: "img", "aria-label": title, width, height, viewBox: `0 0 ${width} ${height}` }, s("title", {}, title), nodes);
  }

  /** Lines over time; each of `series` has a name, a colour, and a value for every one of `times`. */
  function overTime(title, unit, times, lengths, series, told, options) {
    const { least = 0, top = 0, height = 170, across = "since the first batch" } = options || {};
    return chart(title, (width) => {
      const most = top || Math.max(least, ...series.flatMap((each) => each.values)) * 1.08 || 1;
      const end = Math.max(...times), frame = axes(width, height, most, unit, end, told, across), nodes = frame.nodes;
      for (const each of series) {
        const places = [];
        each.values.forEach((value, n) => places.push([frame.x(Math.max(0, times[n] - lengths[n])), frame.y(value)], [frame.x(times[n]), frame.y(value)]));
        const path = places.map(([px, py], n) => `${n ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
        const floor = frame.y(0).toFixed(1);
        if (!each.line) nodes.push(s("path", { d: `${path}L${places[places.length - 1][0].toFixed(1)} ${floor}L${places[0][0].toFixed(1)} ${floor}Z`,
          style: { fill: `var(--${each.colour})`, fillOpacity: 0.16 } }));
        nodes.push(s("path", { d: path, fill: "none", "stroke-width": 1.8, "stroke-linejoin": "round",
          "stroke-dasharray": each.dashed ? "5 4" : null, style: { stroke: `var(--${each.colour})` } }));
      }
      const at = (px) => {
        const value = ((px - frame.inner.x) / frame.inner.w) * end;
        if (value < 0 || value > end) return null;
        let n = times.findIndex((time) => time >= value);
        if (n < 0) n = times.length - 1;
        return { x: px, top: frame.inner.y, bottom: frame.inner.y + frame.inner.h,
          lines: [`at ${seconds(times[n])}`, ...series.map((each) => `${each.name}: ${told(each.values[n])} ${each.unit || ""}`)] };
      };
      return { svg: picture(title, width, height, nodes), at };
    });
  }

  // ---- what is shown ----------------------------------------------------------------------------------------------

  function verdict(data) {
    const why = data.verdict, section = byId("verdict");
    section.classList.toggle("good", ["loop", "handout"].includes(why.limit));
    const advice = why.advice.map((each) => h("li", {}, h("span", { class: "gain" }, each.gain >= 1.05 ? `${each.gain.toFixed(1)}x` : "·"),
      h("div", {}, prose(each.what), each.how && !each.what.includes(each.how) ? [": ", h("code", {}, each.how)] : "", each.limit_then ? h("div", { class: "then" }, `then the limit is: ${each.limit_then}`) : "")));
    show("verdict", h("p", { class: "text" }, prose(why.text)), ...(advice.length ? [h("ul", { class: "advice" }, advice)] : []));
  }

  function tiles(data) {
    const stats = data.stats, now = data.recent && data.recent.length ? data.recent[data.recent.length - 1] : null, found = [];
    const last = stats.history[stats.history.length - 1];
    if (stats.measured) {
      found.push(["Samples per second", count(now ? now[1] : stats.samples_per_s), now ? `${count(stats.samples_per_s)} on average` : `over ${seconds(stats.elapsed_s)}`]);
      if (data.training) found.push(["The loop waited", percent(now ? now[2] : stats.wait_share), now ? `${percent(stats.wait_share)} on average` : `${seconds(stats.waited_s)} for data`]);
      found.push(["Workers busy", percent(now ? now[3] : stats.busy_share), `${many(stats.workers, "worker")} on ${many(stats.cores, "core")}`]);
    }
    if (last && last.budget) found.push(["Memory in flight", bytes(last.nbytes), `of ${bytes(last.budget)} allowed`]);
    if (stats.batches) found.push(["First batch", seconds(stats.first_batch_s), "after it was asked for"]);
    if (stats.skipped) found.push(["Left out", count(stats.skipped), "bad samples"]);
    byId("tiles").replaceChildren(...found.map(([name, figure, note]) =>
      h("section", {}, h("h2", {}, name), h("div", { class: "figure" }, figure), h("p", { class: "note" }, note))));
  }

  function graph(data) {
    if (!data.graph) { show("graph"); return; }
    const body = h("div", {});
    body.innerHTML = data.graph;
    show("graph", body);
  }

  function history(data) {
    const parts = data.stats.history;
    if (parts.length < 2) { show("history"); return; }
    const times = parts.map((part) => part.at_s), lengths = parts.map((part) => part.length_s);
    const rate = parts.map((part) => part.samples / part.length_s), busy = parts.map((part) => 100 * Math.min(1, part.busy_s / part.length_s / Math.max(1, part.workers)));
    const waited = parts.map((part) => 100 * Math.min(1, part.waited_s / part.length_s));
    const shares = [{ name: "workers busy", colour: "cpu", values: busy, unit: "%", line: true }];
    if (data.training) shares.unshift({ name: "loop waited", colour: "loop-wait", values: waited, unit: "%" });
    const latest = data.recent.length > 9 && data.stats.elapsed_s > 240 ? data.recent : [], begun = latest.length ? latest[0][0] : 0;
    const since = latest.map((row) => row[0] - begun), between = since.map((at, n) => at - (since[n - 1] || 0));
    show("history", h("div", { class: "charts" },
      latest.length ? overTime("Throughput lately", "samples/s", since, between, [{ name: "throughput", colour: "hue-0", values: latest.map((row) => row[1]), unit: "samples/s" }], short,
        { height: 140, across: `the last ${seconds(Math.round(-begun))}` }) : "",
      overTime("Throughput", "samples/s", times, lengths, [{ name: "throughput", colour: "hue-0", values: rate, unit: "samples/s" }], short),
      h("div", {}, overTime(data.training ? "Time the training loop waited, and workers were busy" : "Time workers were busy", "% of time", times, lengths, shares, short, { top: 100, height: 140 }),
        shares.length > 1 ? legend(shares.map((each) => [each.colour, each.name])) : "")),
      asTable(["until", "samples/s", ...(data.training ? ["loop waited"] : []), "workers busy", "ready", "in flight", "memory"],
        parts.map((part, n) => [seconds(part.at_s), count(rate[n]), ...(data.training ? [`${waited[n].toFixed(1)} %`] : []), `${busy[n].toFixed(0)} %`, part.ready, part.in_flight, bytes(part.nbytes)])));
  }

  function steps(data) {
    const found = data.stats.steps.filter((step) => step.samples > 0);
    if (!found.length) { show("steps"); return; }
    const cost = (step, way) => step[way] / step.samples, most = Math.max(...found.map((step) => cost(step, "wall_s"))) || 1;
    const unit = most >= 0.01 ? [1e-3, "ms"] : [1e-6, "µs"], marks = ticks(most / unit[0], window.innerWidth < 640 ? 3 : 6), end = most / unit[0];
    const rows = found.map((step) => h("div", { class: "bar" }, h("div", { class: "name" }, step.name),
      h("div", { class: "rail", role: "img", "aria-label": `${step.name}: ${seconds(cost(step, "wall_s"))} per sample` }, WAYS.map(([way, colour, name]) =>
        h("i", { title: `${name}: ${seconds(cost(step, way))}`, style: { width: `${(100 * cost(step, way)) / most}%`, background: `var(--${colour})` } }))),
      h("div", { class: "number" }, seconds(cost(step, "wall_s")))));
    const scale = h("div", { class: "bar" }, h("div", { class: "scale" }, marks.map((value) =>
      h("span", { class: value / end > 0.93 ? "last" : "", style: { left: `${(100 * value) / end}%` } }, short(value)))));
    const used = WAYS.filter(([way]) => found.some((step) => cost(step, way) > most / 1000));
    show("steps", ...rows, scale, h("p", { class: "note" }, `time of one worker for one sample (${unit[1]}), by step`),
      legend(used.map(([, colour, name]) => [colour, name])),
      asTable(["step", "samples", "per sample", "on a core", "no free core", "interpreter lock", "other waiting", "bytes in", "bytes out"],
        found.map((step) => [step.name, count(step.samples), seconds(cost(step, "wall_s")), ...WAYS.map(([way]) => seconds(cost(step, way))), bytes(cost(step, "bytes_in")), bytes(cost(step, "bytes_out"))])));
  }

  function timeline(data) {
    const workers = data.stats.by_worker;
    const found = data.timeline && { ...data.timeline, rows: data.timeline.rows.filter((row) => data.training || row.name !== "loop") };
    if (!found || !found.rows.length) { show("timeline"); return; }
    const names = [...new Set(found.rows.flatMap((row) => row.bars.map((bar) => bar[0])))];
    const fixed = { wait: "loop-wait", step: "loop-step" };
    const order = data.stats.steps.map((step) => step.name), place = (name) => (order.indexOf(name) + 1 || 99);
    const others = names.filter((name) => !(name in fixed) && name !== "other").sort((a, b) => place(a) - place(b));
    const colour = (name) => fixed[name] || (name === "other" ? "wait" : `hue-${Math.min(6, others.indexOf(name))}`);
    const told = { wait: "the loop waits", step: "the loop works", other: "other work of a task" };
    names.sort((a, b) => (a in fixed ? 0 : a === "other" ? 9 : 1) - (b in fixed ? 0 : b === "other" ? 9 : 1) || place(a) - place(b));
    const thick = found.rows.length > 24 ? 9 : 16, gap = found.rows.length > 24 ? 2 : 5, top = 4, height = top + found.rows.length * (thick + gap) + 38;
    const title = `The last ${seconds(found.length_s)}`;
    const drawing = chart(title, (width) => {
      const left = 76, right = 14, inner = width - left - right, x = (value) => left + (value / found.length_s) * inner, floor = height - 38, nodes = [];
      found.rows.forEach((row, n) => {
        const y = top + n * (thick + gap), paths = {}, ends = {};
        nodes.push(s("rect", { x: left, y, width: inner, height: thick, rx: 2, style: { fill: "var(--rail)" } }));
        if (thick > 9 || n % 4 === 0) nodes.push(s("text", { x: left - 8, y: y + thick / 2 + 4, "text-anchor": "end" }, row.name));
        for (const [name, from, to] of row.bars) {
          const start = Math.max(x(from), ends[name] || 0), wide = x(to) - start;
          if (wide <= 0) continue;
          const seam = wide > 3 ? 0.8 : 0;
          // As wide as it is: a thousand steps of some microseconds, each a pixel wide, would look like all of the time.
          paths[name] = `${paths[name] || ""}M${start.toFixed(2)} ${y}h${(wide - seam).toFixed(2)}v${thick}H${start.toFixed(2)}z`;
          ends[name] = start + wide;
        }
        for (const [name, d] of Object.entries(paths)) nodes.push(s("path", { d, style: { fill: `var(--${colour(name)})` } }, s("title", {}, `${row.name}: ${told[name] || name}`)));
      });
      const scale = found.length_s >= 0.5 ? [1, "s"] : [1e-3, "ms"];
      for (const value of ticks(found.length_s / scale[0], Math.max(2, inner / 85))) {
        const place = x(value * scale[0]);
        nodes.push(s("line", { class: "axis", x1: place, x2: place, y1: floor, y2: floor + 4 }), s("text", { class: "tick", x: place, y: floor + 16, "text-anchor": "middle" }, short(value)));
      }
      nodes.push(s("line", { class: "axis", x1: left, x2: left + inner, y1: floor, y2: floor }), s("text", { class: "unit", x: left + inner, y: height - 3, "text-anchor": "end" }, `time (${scale[1]})`));
      return { svg: picture(`${title} of ${data.training ? "the training loop and " : ""}the workers`, width, height, nodes) };
    });
    show("timeline", drawing, legend(names.map((name) => [colour(name), told[name] || name])),
      asTable(["worker", "tasks", "in tasks", "on a core"], workers.map((each) => [each.number, count(each.tasks), seconds(each.busy_s), seconds(each.cpu_s)]), "Workers as a table"));
  }

  function queue(data) {
    const parts = data.stats.history;
    if (parts.length < 2) { show("queue"); return; }
    const times = parts.map((part) => part.at_s), lengths = parts.map((part) => part.length_s), budget = Math.max(...parts.map((part) => part.budget));
    const units = [{ name: "in progress or ready", colour: "hue-6", values: parts.map((part) => part.in_flight) }, { name: "ready", colour: "loop-step", values: parts.map((part) => part.ready) }];
    const most = Math.max(...parts.map((part) => part.nbytes)), scale = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([from]) => most >= from) || [1, "B"], size = parts.map((part) => part.nbytes / scale[0]);
    const used = [{ name: "batches in flight", colour: "hue-2", values: size, unit: scale[1] }, { name: "allowed", colour: "wait", values: parts.map((part) => part.budget / scale[0]), unit: scale[1], line: true, dashed: true }];
    const little = Math.max(...size) * scale[0] < budget / 5;
    if (little) used.pop();
    show("queue", h("div", { class: "pair" },
      h("div", {}, overTime("Batches ahead", "units", times, lengths, units, short, { least: 2 }), legend(units.map((each) => [each.colour, each.name]))),
      h("div", {}, overTime("Memory", scale[1], times, lengths, used, short), legend([...used.map((each) => [each.colour, `${each.name}${little ? `; ${bytes(budget)} allowed` : ""}`])]))),
      h("p", { class: "note" }, "a unit is a batch, or several small ones; the table under \u201cOver time\u201d has these figures"));
  }

  function histogram(title, counts, across) {
    const total = counts.reduce((sum, n) => sum + n, 0), first = counts.findIndex((n) => n > 0), shown = counts.slice(first);
    const place = (bucket) => 1e-6 * 2 ** (bucket / 2);
    const quantile = (share) => { let left = share * total; for (let n = 0; n < counts.length; n++) { left -= counts[n]; if (counts[n] && left <= 0) return place(n - 0.5); } return 0; };
    const drawing = chart(title, (width) => {
      const height = 150, most = (100 * Math.max(...shown)) / total, inner = { x: MARGIN.left, w: width - MARGIN.left - MARGIN.right, y: MARGIN.top, h: height - MARGIN.top - MARGIN.bottom };
      const y = (value) => inner.y + inner.h - (value / most) * inner.h, wide = inner.w / shown.length, nodes = [];
      for (const value of ticks(most, 3)) nodes.push(s("line", { class: "grid", x1: inner.x, x2: inner.x + inner.w, y1: y(value), y2: y(value) }), s("text", { x: inner.x - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)));
      const every = Math.max(1, Math.ceil((shown.length * 58) / inner.w));
      shown.forEach((n, at) => {
        const share = (100 * n) / total;
        if (n) nodes.push(s("rect", { x: inner.x + at * wide + 1, width: Math.max(1, wide - 2), y: y(share), height: Math.max(1, inner.y + inner.h - y(share)), rx: 1.5, style: { fill: "var(--hue-0)" } },
          s("title", {}, `up to ${seconds(place(first + at))}: ${short(share)} % (${count(n)})`)));
        if (at % every === 0) nodes.push(s("text", { class: "tick", x: inner.x + at * wide, y: inner.y + inner.h + 16, "text-anchor": "middle" }, seconds(+place(first + at - 1).toPrecision(2))));
      });
      nodes.push(s("line", { class: "axis", x1: inner.x, x2: inner.x + inner.w, y1: inner.y + inner.h, y2: inner.y + inner.h }),
        s("text", { class: "unit", x: 0, y: 11 }, "%"), s("text", { class: "unit", x: inner.x + inner.w, y: height - 3, "text-anchor": "end" }, across));
      return { svg: picture(title, width, height, nodes) };
    });
    drawing.append(h("p", { class: "note" }, `half take up to ${seconds(+quantile(0.5).toPrecision(2))}, 99 % up to ${seconds(+quantile(0.99).toPrecision(2))}`));
    return drawing;
  }

  function spread(data) {
    const stats = data.stats, parts = [];
    if (data.training && stats.loop.waits.counts.some((n) => n)) parts.push(histogram("Waits of the loop for a batch", stats.loop.waits.counts, "length of a wait"));
    if (stats.sample_costs.counts.some((n) => n)) parts.push(histogram("Time of a worker for one sample", stats.sample_costs.counts, "time (mean of a task)"));
    const tables = [];
    if (stats.slowest.length) tables.push(h("h3", {}, "Slowest samples"), table(["sample", "time of a worker"], stats.slowest.map((each) => [each.key, seconds(each.seconds)])));
    if (stats.origins.length) tables.push(h("h3", {}, "Slowest to read from"), table(["where", "samples", "per sample"], stats.origins.map((each) => [each.name, count(each.samples), seconds(each.wall_s / Math.max(1, each.samples))])));
    if (!parts.length && !tables.length) { show("spread"); return; }
    show("spread", h("div", { class: "pair" }, parts), ...tables);
  }

  function lesson(data) {
    const rows = data.lesson;
    if (!rows.length) { show("lesson"); return; }
    const most = Math.max(...rows.map((row) => row.loss)) * 1.05 || 1;
    const drawing = (name, key, unit, top, colour, told) => chart(name, (width) => {
      const height = 170, inner = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right - 8, h: height - MARGIN.top - MARGIN.bottom };
      const x = (n) => inner.x + (rows.length > 1 ? (n / (rows.length - 1)) * inner.w : inner.w / 2), y = (value) => inner.y + inner.h - (value / top) * inner.h, nodes = [];
      for (const value of ticks(top, 4)) nodes.push(s("line", { class: "grid", x1: inner.x, x2: inner.x + inner.w, y1: y(value), y2: y(value) }), s("text", { x: inner.x - 8, y: y(value) + 4, "text-anchor": "end" }, told(value)));
      const points = rows.map((row, n) => [row[key], x(n)]).filter(([value]) => Number.isFinite(value))
        .map(([value, px]) => [px, y(Math.min(top, unit === "%" ? 100 * value : value))]);
      nodes.push(s("path", { d: points.map(([px, py], n) => `${n ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join(""), fill: "none", "stroke-width": 2, style: { stroke: `var(--${colour})` } }));
      points.forEach(([px, py]) => nodes.push(s("circle", { cx: px, cy: py, r: 3.4, style: { fill: `var(--${colour})` } })));
      const every = Math.ceil((rows.length * 34) / inner.w);
      rows.forEach((row, n) => { if (n % every === 0) nodes.push(s("text", { class: "tick", x: x(n), y: inner.y + inner.h + 16, "text-anchor": "middle" }, String(row.epoch))); });
      nodes.push(s("line", { class: "axis", x1: inner.x, x2: inner.x + inner.w, y1: inner.y + inner.h, y2: inner.y + inner.h }),
        s("text", { class: "unit", x: 0, y: 11 }, unit), s("text", { class: "unit", x: inner.x + inner.w, y: height - 3, "text-anchor": "end" }, "epoch"));
      return { svg: picture(name, width, height, nodes) };
    });
    show("lesson", h("div", { class: "pair" }, drawing("Accuracy on samples not trained on", "accuracy", "%", 100, "hue-0", short), drawing("Loss", "loss", "loss", most, "hue-1", short)),
      table(["epoch", "loss", "accuracy", "images/s", "waited"], rows.map((row) => [row.epoch, Number.isFinite(row.loss) ? row.loss.toFixed(3) : "–", percent(row.accuracy), count(row.images_per_s), percent(row.wait_share)])));
  }

  function pictures(data) {
    if (!data.pictures.length) { show("pictures"); return; }
    show("pictures", h("div", { class: "sheet" }, data.pictures.map((each) =>
      h("figure", {}, h("img", { alt: each.name, src: each.src }), h("figcaption", { title: each.name }, each.name)))));
  }

  function settings(data) {
    const rows = Object.entries(data.settings);
    if (!rows.length && !data.plan) { show("settings"); return; }
    show("settings", ...(rows.length ? [table([], rows, "settings")] : []), ...(data.plan ? [h("pre", {}, data.plan)] : []));
  }

  function state(kind, text) {
    const node = byId("state");
    node.className = `state ${kind}`;
    if (node.textContent !== text) node.textContent = text;
  }

  function render(data) {
    document.title = byId("title").textContent = data.title;
    byId("under").textContent = data.under;
    state(...STATES[data.state]);
    for (const part of [verdict, tiles, graph, history, steps, timeline, queue, spread, lesson, pictures, settings]) {
      try { part(data); } catch (error) { console.error(error); } // what else there is to see is shown all the same
    }
    redraw();
  }

  // ---- a run that goes on -----------------------------------------------------------------------------------------

  const token = new URLSearchParams(location.search).get("token");
  let missed = 0;
  async function ask() {
    if (!document.hidden) {
      try {
        const answer = await fetch("data", { headers: { "X-Stoker-Token": token }, cache: "no-store" });
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        const data = await answer.json();
        missed = 0;
        render(data);
        if (data.state !== "running") return;
      } catch (error) {
        missed += 1;
        state("lost", "no answer: the program may have ended; this is its last state");
      }
    }
    setTimeout(ask, missed > 5 ? 10000 : 1000);
  }

  const first = JSON.parse(byId("data").textContent);
  render(first);
  if (first.state === "running") setTimeout(ask, 1000);
  let resized = 0;
  addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(redraw); });
})();
