// The sentence that the attention view and the walkthrough show.

import { element } from "./look/dom.js";
import { post, retryWhileBusy } from "./api_client.js";

// Why the chosen model has no attention to show; empty where it has.
export function attentionUnavailable(page) {
  const { source, target, model } = page.current;
  const models = page.modelsFor(source, target);
  const chosen = models.find(({ name }) => name === model) ?? models[0];
  if (!chosen) return page.texts.noModel;
  return chosen.attention ? "" : page.texts.noAttention;
}

// A field for a sentence of one's own: { form, input }.
export function createSentenceForm({ texts, settings }, { value, onSubmit }) {
  const input = element("input", { type: "text", id: "sentence", value, maxlength: settings.charLimit });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) onSubmit(input.value.trim());
  };
  const label = element("label", { for: "sentence" }, texts.sentence);
  const form = element("form", { class: "sentence-form", onsubmit: submit }, label, input, element("button", {}, texts.showSentence));
  return { form, input };
}

// The text of the translate view, or where there is none an example of the model.
export function chooseText(page) {
  const { source, target, model, text } = page.current;
  const models = page.modelsFor(source, target);
  const { examples } = models.find(({ name }) => name === model) ?? models[0] ?? { examples: [] };
  return text.trim() ? text : (examples[Math.floor(examples.length / 2)] ?? "");
}

// The request for the first sentence of a text, with its translation where that is known, and whether the text
// has more. The model translates sentence by sentence, so attention maps exist within one sentence only.
export async function prepareSentence(page, text) {
  const { source, target, model, ...current } = page.current;
  const options = { source, target, ...(model ? { model } : {}) };
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  let { sentences, translation } = current;
  if (current.translated !== text || !sentences?.length) {
    const fields = { q: lines[0].trim(), details: true, ...options };
    const response = await retryWhileBusy(() => post("translate", fields), undefined, () => {});
    translation = response.translatedText;
    sentences = response.details?.sentences ?? [lines[0].trim()];
  }
  const hasMore = lines.length > 1 || sentences.length > 1;
  const q = sentences[0] ?? lines[0].trim();
  return { fields: { q, ...options, ...(hasMore ? {} : { translation: translation.trim() }) }, hasMore };
}
