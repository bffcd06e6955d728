// Below the map: summary, warnings, figures, genes and parameters of the calls.

function section(title, open) {
  const made = element("details", "", byId("sections"));
  made.open = open;
  element("summary", title, made);
  return made;
}

function text(value) {
  if (Array.isArray(value)) return value.map(text).join(", ");
  if (typeof value !== "object") return value;
  return Object.entries(value).map(([name, part]) => `${name}: ${text(part)}`).join(", ");
}

function table(rows, parent) {
  const made = element("table", "", parent);
  for (const [name, value] of rows) {
    const line = element("tr", "", made);
    element("th", name, line);
    element("td", text(value), line);
  }
}

function showSections() {
  const records = Object.entries(data.records);
  const warnings = [...new Set(records.flatMap(([, record]) => record.warnings ?? []))];
  if (warnings.length) {
    const list = element("ul", "", section(`Warnings (${warnings.length})`, true), "warnings");
    warnings.forEach((text) => element("li", text, list));
  }
  for (const [, { summary }] of records) {
    if (summary) table(text(summary).split("\n").map((line) => line.split(/ {2,}(.*)/s)).filter((pair) => pair.length > 1), section("Summary", true));
  }
  if (data.figures.length) {
    const into = section("Figures", true);
    for (const { caption, png } of data.figures) {
      const figure = element("figure", "", into), image = element("img", "", figure);
      Object.assign(image, { alt: caption, loading: "lazy", src: `data:image/png;base64,${png}` });
      element("figcaption", caption, figure);
    }
  }
  const genes = records.filter(([, record]) => record.genes?.text);
  if (genes.length) {
    const rows = genes.flatMap(([key, { genes: { text, missing } }]) => [[key, text], ...(missing?.length ? [["not in the query", missing.join(", ")]] : [])]);
    table(rows, section("Genes", false));
  }
  if (!records.length) return;
  const into = section("Parameters", false);
  for (const [key, record] of records) {
    for (const [part, what] of [["params", "what was decided"], ["call", "what was asked for"]]) {
      if (!record[part]) continue;
      element("h3", `${key}: ${what}`, into);
      table(Object.entries(record[part]), into);
    }
    if (!record.reference) continue;
    element("h3", `${key}: the reference`, into);
    element("pre", text(record.reference), into);
  }
}
