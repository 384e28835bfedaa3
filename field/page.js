// Draws the figures of the page's data. Texts are shown as texts: plotly would take tags in them for markup.
const wrong = why => document.body.dataset.error = why;
window.addEventListener("error", event => wrong(event.message));
document.addEventListener("securitypolicyviolation", event => wrong(event.violatedDirective));
const plain = value => typeof value === "string" ? value.replace(/[<>&]/g, c => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" })[c])
  : Array.isArray(value) ? value.map(plain)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
  : value;
const SCENE_PX = 1050;  // width that a course in 3-D takes at its given distance of the eye; narrower boxes show it from farther away
let page;  // its data

function unpacked(id) {  // the text in an element
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), digit => digit.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

async function load() {
  page = JSON.parse(await unpacked("data"));
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly");
  document.body.append(script);
}

function draw(figure) {  // resolves to plotly's element
  let box = document.getElementById(figure.box);
  if (!box) {
    const place = document.getElementById("figures");
    place.insertAdjacentHTML("beforeend", "<h2></h2><div class='figure'></div>");
    place.querySelector("h2:last-of-type").textContent = figure.title;
    box = place.lastElementChild;
  }
  if (figure.layout.height) box.style.height = figure.layout.height + "px";
  const layout = { margin: { t: 20, r: 10 }, ...plain(figure.layout) };
  const eye = layout.scene?.camera?.eye, back = Math.max(1, SCENE_PX / box.clientWidth);
  if (eye) for (const axis in eye) eye[axis] *= back;
  return Plotly.newPlot(box, plain(figure.data), layout, { responsive: true, displaylogo: false, ...figure.config });
}

function sort(head) {  // the rows below a column's head, numbers as such and before texts; once more the other way round
  const sign = head.dataset.sign = head.dataset.sign === "1" ? "-1" : "1";
  const [, ...rows] = head.closest("table").rows, cell = row => row.cells[head.cellIndex].textContent;
  const number = text => text.trim() && !isNaN(text) ? Number(text) : Infinity;
  const ahead = (a, b) => number(a) === number(b) ? a.localeCompare(b) : number(a) - number(b);
  rows.sort((a, b) => sign * ahead(cell(a), cell(b))).forEach(row => row.parentNode.append(row));
}
document.addEventListener("click", event => event.target.matches("table.sorts th") && sort(event.target));

const drawn = load().then(() => Promise.all(page.figures.map(draw)));
drawn.then(boxes => document.body.dataset.drawn = boxes.length, wrong);
