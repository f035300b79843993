// A search field above the tables that follow <div id="filter">: only rows that contain all of its words are shown. A row is also
// found by the heading of its table.
const place = document.getElementById("filter");
if (place) {
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "Filter recipes: knowledge, 12x768, unigram mask, Devlin …";
  field.setAttribute("aria-label", field.placeholder);
  place.append(field);
  let heading = null;
  const tables = [];
  for (const element of place.parentElement.querySelectorAll("h2, table")) {
    if (!(place.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
    if (element.tagName === "H2") heading = element;
    else tables.push({ table: element, heading, rows: [...element.tBodies[0].rows] });
  }
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { table, heading, rows } of tables) {
      for (const row of rows) {
        const text = `${heading?.textContent ?? ""} ${row.textContent}`.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      const empty = rows.every((row) => row.hidden);
      table.hidden = empty;
      if (heading) heading.hidden = empty;
    }
  };
  field.addEventListener("input", show);
}
