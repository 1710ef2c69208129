// What the page asks of its server. A refusal is an Error with the server's own words, its status and its wait.

let key = "";

export function useKey(given) {
  key = given;
}

// A header holds bytes: the key's UTF-8, each byte as a character.
function headers() {
  const bytes = String.fromCharCode(...new TextEncoder().encode(key));
  return key ? { authorization: `Bearer ${bytes}` } : {};
}

async function answered(path, options) {
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...headers() } });
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => ({}));
  const fault = new Error(said.error ?? `${answer.status}`);
  fault.status = answer.status;
  fault.kind = said.kind;
  fault.wait = Number(answer.headers.get("retry-after")) || 1;
  throw fault;
}

// In the page's language as far as the page knows the reason.
export function why(fault, texts) {
  if (!fault.status) return texts.unreachable;
  return fault.kind === "too_long" ? texts.sentenceTooLong : texts.refused(fault.message);
}

export function get(path, signal) {
  return answered(path, { signal });
}

export function post(path, asked, signal) {
  return answered(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(asked),
    signal,
  });
}

// Waits until the server has a place again, however often that takes.
export async function patiently(ask, signal, onWait) {
  for (;;) {
    try {
      return await ask();
    } catch (fault) {
      if (fault.status !== 503) throw fault;
      onWait(fault.wait);
      await pause(1000 * fault.wait, signal);
    }
  }
}

export function pause(milliseconds, signal) {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("left", "AbortError"));
    });
  });
}
