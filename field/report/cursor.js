// One cursor through all charts, the path and the camera: `page.more` has its instants x, and the places and images there.
drawn.then(boxes => {
  const { x, places, gates, unit, start, images = [], overlay = {} } = page.more;
  const byId = id => document.getElementById(id);
  const nearest = (values, at) => {  // row of rising values
    let low = 0, high = values.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (values[middle] > at) high = middle; else low = middle; }
    return Math.abs(values[low] - at) <= Math.abs(values[high] - at) ? low : high;
  };
  const figures = boxes.map((box, k) => ({ box, figure: page.figures[k] }));
  const charts = figures.filter(({ figure }) => figure.linked);
  const [space, top] = ["path", "top"].map(id => figures.find(({ figure }) => figure.box === id));
  const source = k => "data:image/jpeg;base64," + images[k][1];
  const axisOf = box => box._fullLayout.xaxis;
  const CLICK_PX = 4, REST_MS = 100;  // a click moves no further; space is drawn anew once the cursor rests
  let at = start, held = false, asked = 0, resting = 0;

  for (const chart of charts) {
    chart.line = chart.box.appendChild(document.createElement("div"));
    chart.line.className = "cursor";
    chart.output = chart.box.previousElementSibling.querySelector("output");
  }

  function told(trace, figure, row) {  // a line's value at the cursor, in its colour
    const span = document.createElement("span"), y = trace.y[nearest(trace.x, at)];
    const name = figure.data.length > 1 ? trace.name + " " : "", unitless = figure.unit === "-";
    span.textContent = name + (y == null ? "-" : +y.toPrecision(3) + (unitless ? "" : " " + figure.unit));
    span.style.color = trace.line?.color ?? figure.layout.colorway[row % figure.layout.colorway.length];
    return span;
  }

  const SVG = "http://www.w3.org/2000/svg";
  function annotate(image) {  // what was detected in it, and where the map has gates
    const element = (name, attributes, text = "") => {
      const made = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      made.textContent = text;
      return made;
    };
    const outline = (corners, kind) => element("polygon", { class: kind, points: corners.map(corner => corner.join()).join(" ") });
    const expected = overlay.expected[image].flatMap(([gate, corners]) => [outline(corners, "expected"),
      element("text", { class: "expected", x: corners[1][0] + 3, y: corners[1][1] }, gate)]);
    const svg = byId("overlay");
    svg.setAttribute("viewBox", `0 0 ${overlay.size.join(" ")}`);
    svg.replaceChildren(...expected, ...overlay.detected[image].map(corners => outline(corners, "detected")));
  }

  function show() {
    asked = 0;
    const k = nearest(x, at), passed = gates.filter(gate => gate <= at).length;
    for (const { box, figure, line, output } of charts) {
      const axis = axisOf(box), left = axis.l2p(at), height = box._fullLayout.yaxis;
      line.hidden = left < 0 || left > axis._length;
      Object.assign(line.style, { left: axis._offset + left + "px", top: height._offset + "px", height: height._length + "px" });
      output.replaceChildren(...figure.data.map((trace, row) => told(trace, figure, row)));
    }
    const [east, north, up] = [0, 1, 2].map(axis => places.map(place => [place[axis][k]]));
    const marks = places.map((_, flight) => space.figure.mark + flight);
    Plotly.restyle(top.box, { x: east, y: north }, marks);
    clearTimeout(resting);
    resting = setTimeout(() => Plotly.restyle(space.box, { x: east, y: north, z: up }, marks), REST_MS);
    byId("place").textContent = `${at.toFixed(2)} ${unit}, ` + (passed === gates.length ? `after gate ${passed - 1}`
      : passed ? `between gates ${passed - 1} and ${passed}` : "before gate 0");
    if (images.length) {
      const image = nearest(images.map(([t]) => t), at);
      byId("image").src = source(image);
      if (overlay.size) annotate(image);
      byId("image-time").textContent = `at ${images[image][0].toFixed(2)} s`;
    }
    document.body.dataset.cursor = at.toFixed(3);
  }
  function move(to) {
    at = Math.min(Math.max(to, x[0]), x[x.length - 1]);
    asked ||= requestAnimationFrame(show);
  }

  let syncing = false;
  for (const { box } of charts) {
    const under = event => axisOf(box).p2l(event.clientX - box.getBoundingClientRect().left - axisOf(box)._offset);
    box.addEventListener("mousemove", event => held || move(under(event)));
    box.addEventListener("mousedown", down => window.addEventListener("mouseup", up => {  // plotly keeps clicks to itself
      if (Math.abs(up.clientX - down.clientX) < CLICK_PX) { held = !held; move(under(down)); }
    }, { capture: true, once: true }), true);
    box.on("plotly_relayout", async change => {  // all charts show the same stretch
      if (syncing || !Object.keys(change).some(key => key.startsWith("xaxis"))) return;
      syncing = true;
      const range = [...axisOf(box).range];
      await Promise.all(charts.map(other => other.box === box || Plotly.relayout(other.box, { "xaxis.range": [...range] })));
      syncing = false;
      show();
    });
    box.on("plotly_afterplot", () => asked ||= requestAnimationFrame(show));
  }
  document.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    held = true;
    move(x[Math.min(Math.max(nearest(x, at) + step, 0), x.length - 1)]);
    event.preventDefault();
  });
  for (const one of document.querySelectorAll("[data-x]"))
    one.addEventListener("click", () => { held = true; move(+one.dataset.x); });
  show();
});
