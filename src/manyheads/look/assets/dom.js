// Create elements with attributes, listeners and children. Strings become text nodes, never markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  setAttributes(node, attributes);
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function svgElement(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG_NAMESPACE, name);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

// Whether fingers rather than a mouse and a keyboard are used, so that hints name what is there.
export const isTouchScreen = () => matchMedia("(hover: none)").matches;

// Names that start with "on" are event listeners; true is an empty attribute; false and null are left out.
function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
}
