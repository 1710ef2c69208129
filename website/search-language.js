// The index of the search holds the pages of both languages. Those in the language of the reader's page come first: they
// are weighted when the page sends the index to the worker of the theme.

const LANGUAGE_WEIGHT = 1000;
const SETUP = 0; // the type of the theme's message with the index

function weightDocuments(message) {
  if (message?.type !== SETUP || !message.data?.docs) return message;
  const findLanguage = ({ location }) => (/\.ko\.html(#|$)/.test(location) ? "ko" : "en");
  const { lang } = document.documentElement;
  const docs = message.data.docs.map((doc) =>
    findLanguage(doc) === lang ? { ...doc, boost: (doc.boost ?? 1) * LANGUAGE_WEIGHT } : doc,
  );
  return { ...message, data: { ...message.data, docs } };
}

const { postMessage } = window.Worker.prototype;
window.Worker.prototype.postMessage = function (message, ...options) {
  return postMessage.call(this, weightDocuments(message), ...options);
};
