// Draws the figures of the page's data. Texts are shown as texts: plotly would take tags in them for markup.
window.addEventListener("error", event => document.body.dataset.error = event.message);
document.addEventListener("securitypolicyviolation", event => document.body.dataset.error = event.violatedDirective);
const plain = value => typeof value === "string" ? value.replace(/[<>&]/g, c => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" })[c])
  : Array.isArray(value) ? value.map(plain)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
  : value;
const figures = JSON.parse(document.getElementById("data").textContent);
Promise.all(figures.map(figure => {
  const place = document.getElementById("figures");
  place.insertAdjacentHTML("beforeend", "<h2></h2><div class='figure'></div>");
  place.querySelector("h2:last-of-type").textContent = figure.title;
  const box = place.lastElementChild;
  if (figure.layout.height) box.style.height = figure.layout.height + "px";
  const layout = { margin: { t: 20, r: 10 }, ...plain(figure.layout) };
  return Plotly.newPlot(box, plain(figure.data), layout, { responsive: true, displaylogo: false });
})).then(() => document.body.dataset.drawn = figures.length, error => document.body.dataset.error = error);
