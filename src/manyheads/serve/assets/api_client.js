// Requests to the server. A rejected request throws an Error with the server's message, status, code and retry delay.

let apiKey = "";

export function setApiKey(key) {
  apiKey = key;
}

// A header holds bytes: the UTF-8 of the key, one character per byte.
function authorizationHeaders() {
  const bytes = String.fromCharCode(...new TextEncoder().encode(apiKey));
  return apiKey ? { authorization: `Bearer ${bytes}` } : {};
}

async function request(path, options, read = (response) => response.json()) {
  const response = await fetch(path, { ...options, headers: { ...options.headers, ...authorizationHeaders() } });
  if (response.ok) return read(response);
  const body = await response.json().catch(() => ({}));
  const error = new Error(body.error ?? `${response.status}`);
  error.status = response.status;
  error.code = body.code;
  error.retryAfter = Number(response.headers.get("retry-after")) || 1;
  throw error;
}

// A message in the language of the page, where the page has a text for the error.
export function errorMessage(error, texts) {
  if (!error.status) return texts.unreachable;
  return error.code === "too_many_numbers" ? texts.sentenceTooLong : texts.rejected(error.message);
}

export function get(path, signal) {
  return request(path, { signal });
}

export function post(path, fields, signal) {
  return request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(fields),
    signal,
  });
}

export function postForm(path, form, signal) {
  return request(path, { method: "POST", body: form, signal });
}

export function getBlob(path, signal) {
  return request(path, { signal }, (response) => response.blob());
}

// Retry while the server is busy (503, or 429 for one client), after the delay that it asks for.
export async function retryWhileBusy(send, signal, onWait) {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (error.status !== 503 && error.status !== 429) throw error;
      onWait(error.retryAfter);
      await sleep(1000 * error.retryAfter, signal);
    }
  }
}

export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}
