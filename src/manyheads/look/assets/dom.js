// Elements with their properties and children. Text goes in as text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  give(made, properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function svgElement(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  give(made, attributes);
  made.append(...children);
  return made;
}

function give(made, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
}
