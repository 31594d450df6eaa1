// Elements from script. Strings always become text nodes or attributes, never markup: labels come from outside.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `props` are attributes, `on…` listeners, `class`, `data` (an object) and `style` (custom properties). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/**
 * Make the children of an element look like these nodes. Those that are there already stay, with the place to which one has
 * scrolled, the focus and the selection; only what differs is changed. Not for elements with listeners.
 */
export function renew(element, ...children) {
  followAll(element, flat(children));
}

function follow(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return void old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = fresh.style.cssText; // the attribute itself is refused by the policy
    else old.setAttribute(name, value);
  }
  followAll(old, [...fresh.childNodes]);
}

function followAll(element, after) {
  const before = [...element.childNodes];
  for (const extra of before.slice(after.length)) extra.remove();
  after.forEach((each, k) => (k < before.length ? follow(before[k], each) : element.append(each)));
}

/** Set a text only if it differs, so that selections and screen readers are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A label from outside: isolated from the direction of the text around it, cut by CSS, whole in its tooltip. */
export function label(text, props = {}) {
  return h("bdi", { ...props, class: `label ${props.class ?? ""}`.trim(), title: text }, text);
}

/** Say something to screen readers, sparingly. */
export function announce(text) {
  setText(document.getElementById("announcer"), text);
}

/** A data table. Columns: {title, number, cell(row) → node or text, rowHead}. */
export function table(caption, columns, rows, props = {}) {
  return h(
    "table",
    props,
    h("caption", { class: props.showCaption ? "" : "visually-hidden" }, caption),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        columns.map((column) => h("th", { scope: "col", class: column.number ? "n" : "" }, column.title)),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map((row) => tableRow(columns, row)),
    ),
  );
}

export function tableRow(columns, row) {
  return h(
    "tr",
    {},
    columns.map((column) =>
      column.rowHead
        ? h("th", { scope: "row", class: column.class }, column.cell(row))
        : h("td", { class: `${column.number ? "n" : ""} ${column.class ?? ""}`.trim() || null }, column.cell(row)),
    ),
  );
}

const ICONS = {
  sun: "M10 3.2V1.5M10 18.5v-1.7M3.2 10H1.5m17 0h-1.7M5.2 5.2 4 4m12 12-1.2-1.2M5.2 14.8 4 16M16 4l-1.2 1.2M13.5 10a3.5 3.5 0 1 1-7 0 3.5 3.5 0 0 1 7 0Z",
  moon: "M17 12.1A7.2 7.2 0 0 1 7.9 3 7.2 7.2 0 1 0 17 12.1Z",
  auto: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15Zm0 0v15M10 5.5l4.6 4.6M10 9l4 4M10 12.5l2.6 2.6",
  warning:
    "M10 7.5v3.6m0 2.6v.1M8.9 3.2 2 15a1.3 1.3 0 0 0 1.1 2h13.8a1.3 1.3 0 0 0 1.1-2L11.1 3.2a1.3 1.3 0 0 0-2.2 0Z",
  info: "M10 9.2v4.6m0-7.4v.1M17.5 10a7.5 7.5 0 1 1-15 0 7.5 7.5 0 0 1 15 0Z",
  check: "m4 10.5 4 4 8-9",
  plus: "M10 4v12M4 10h12",
  download: "M10 3v9.5m0 0 3.6-3.6M10 12.5 6.4 8.9M3.5 16.5h13",
  search: "m13.2 13.2 4 4M14.7 8.8a5.9 5.9 0 1 1-11.8 0 5.9 5.9 0 0 1 11.8 0Z",
  pause: "M7 4v12M13 4v12",
  play: "m6 4 10 6-10 6V4Z",
  sliders: "M3 6h8m4 0h2M3 14h2m4 0h8M13 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4Zm-6 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z",
  people:
    "M7.5 9.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm-5.5 7a5.5 5.5 0 0 1 11 0M13 3.8a3 3 0 0 1 0 5.4m2 2.5a5.5 5.5 0 0 1 3 4.8",
  calendar:
    "M3 8h14M6.5 2.5v3m7-3v3M4.5 4h11A1.5 1.5 0 0 1 17 5.5v10a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 15.5v-10A1.5 1.5 0 0 1 4.5 4Z",
  back: "M4 9h8.5a4 4 0 0 1 0 8H8M4 9l4-4M4 9l4 4",
  erase: "M4 5.5h12M8 5.5V3.5h4v2m-6.5 0 .7 11h7.6l.7-11",
  key: "M12.5 11.5a4 4 0 1 0-3.8-2.8L2.5 15v2.5h3v-2h2v-2h1.7l1.5-1.5a4 4 0 0 0 1.8.5Zm1-4.5v.1",
  menu: "M4 10h.1M10 10h.1M16 10h.1",
  close: "m5 5 10 10M15 5 5 15",
  link: "M8.5 11.5a3.5 3.5 0 0 0 5 0l3-3a3.5 3.5 0 0 0-5-5l-1 1m1 4a3.5 3.5 0 0 0-5 0l-3 3a3.5 3.5 0 0 0 5 5l1-1",
};

export function icon(name) {
  return s(
    "svg",
    {
      class: `icon icon-${name}`,
      viewBox: "0 0 20 20",
      "aria-hidden": "true",
      focusable: "false",
    },
    s("path", {
      d: ICONS[name],
      fill: "none",
      stroke: "currentColor",
      "stroke-width": name === "menu" ? 2.6 : 1.6,
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
    }),
  );
}
