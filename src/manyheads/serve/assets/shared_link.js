// A link to a text: the address of the page with the text and its languages after the view's name. What stands after #
// is not sent to the server when the page is opened.

const FIELDS = ["text", "source", "target"];

export function createLink({ text, source, target }) {
  const url = new URL(location.href);
  url.hash = `translate?${new URLSearchParams({ text, source, target })}`;
  return url.href;
}

// The view and what a link says: {view, text, source, target}.
export function readLink(hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const fields = FIELDS.filter((name) => parameters.has(name)).map((name) => [name, parameters.get(name)]);
  return { view, ...Object.fromEntries(fields) };
}
