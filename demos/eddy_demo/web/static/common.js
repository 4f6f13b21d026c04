// Parts of every page: the token, the keyboard, and the progress of the server.

/** The elements of the page by their ids, as in `parts.answerBody` for answer-body. */
export const parts = new Proxy({}, { get: (_, name) => document.getElementById(name.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`)) });

const meta = document.querySelector('meta[name="token"]');
const { banner } = parts;
const listeners = new Set();
let latest = null;

/** Creates an element; a text child is never markup. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Calls the API; an error has a plain message. */
export async function call(path, { method = "GET", body = null, signal = null } = {}) {
  let response;
  try {
    response = await fetch(path, { method, body, signal, headers: { "x-eddy-token": meta.content } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is it still running?");
  }
  if (response.ok) return response;
  throw new Error(await response.json().then(({ error }) => error, () => `the server answered with ${response.status}`));
}

/** Sends files to the library, saying how far that is and what is not taken; returns whether all are. */
export async function send(files, say) {
  const all = [...files];
  const refused = [];
  for (const [at, file] of all.entries()) {
    say(`${file.name} is being sent${all.length > 1 ? `, ${at + 1} of ${all.length}` : ""} …`, false);
    try {
      await call(`/api/uploads?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    } catch ({ message }) {
      refused.push(sentence(message.includes(file.name) ? message : `${file.name}: ${message}`));
    }
  }
  say(refused.length ? `Not taken: ${refused.join(" ")}` : "", refused.length > 0);
  return !refused.length;
}

/** Makes a sentence of a message; a file's name at its beginning stays as it is. */
export function sentence(text) {
  const line = /^[^.:;]*\.\w/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(line) ? line : `${line}.`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

function duration(seconds) {
  if (seconds < 1.5) return "a second";
  if (seconds < 90) return `${Math.round(seconds)} seconds`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} minutes`;
  return `${Math.round(seconds / 3600)} hours`;
}

/** Says how far a rebuild is, and how long it still takes. */
export function share(rebuilding) {
  const left = rebuilding.left === null ? "" : `, about ${duration(rebuilding.left)} left`;
  return `${Math.floor(rebuilding.done * 100)} %${left}`;
}

/** Calls a function with the progress, at once and after each change. */
export function onProgress(listener) {
  listeners.add(listener);
  if (latest) listener(latest);
}

function told(progress) {
  latest = progress;
  meta.content = progress.token; // the server may have restarted
  const problem = progress.error || progress.busy;
  if (problem) show(sentence(problem), true);
  else if (!progress.ready) show("The model is being loaded …", false);
  else if (progress.rebuilding && !progress.rebuilding.deepening) show(`The library is being made anew: ${share(progress.rebuilding)}. It answers as before meanwhile.`, false);
  else show("", false);
  for (const listener of listeners) listener(progress);
}

function show(text, failed) {
  banner.textContent = text;
  banner.classList.toggle("failed", failed);
  banner.hidden = !text;
}

let source = null;

function listen() {
  source?.close();
  if (document.hidden) return; // a browser opens only six connections to a server: hidden pages must not occupy them
  const own = (source = new EventSource("/api/events"));
  own.addEventListener("progress", (event) => told(JSON.parse(event.data)));
  own.addEventListener("error", () => {
    const refused = own.readyState === EventSource.CLOSED; // the browser does not try again
    const what = refused ? "The server refuses this page: open the address that it printed." : "The server does not answer.";
    show(`${what} What was uploaded is kept; this page goes on by itself.`, true);
    if (refused) setTimeout(() => own === source && listen(), 2000);
  });
}

addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => {
  if (event.persisted) listen(); // restored from the back/forward cache
});
document.addEventListener("visibilitychange", listen);
listen();

// --- Files dropped on a page, which a browser would open otherwise; the library has its own way to take them

for (const name of ["dragover", "drop"]) {
  addEventListener(name, (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); // a text may still be dropped into a field
  });
}
if (location.pathname !== "/library") {
  addEventListener("drop", async (event) => {
    if (!event.dataTransfer?.files.length) return;
    parts.empty?.remove(); // else the first document would reload the page, and not open the library
    if (await send(event.dataTransfer.files, show)) location.assign("/library");
  });
}

// --- What this browser alone keeps, where it lets a page keep something

export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The choice lasts as long as the page.
  }
}

// --- Keyboard

const actions = new Map();

/** Adds a key to one page. */
export function onKey(key, action) {
  actions.set(key, action);
}

onKey("/", () => (parts.question ? parts.question.select() : location.assign("/")));
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const types = target.matches("input:not([type=checkbox], [type=file])");
  if (types && key === "Escape") target.blur();
  if (types && !(key === "/" && target.id === "question" && !target.value)) return;
  if (actions.has(key)) event.preventDefault();
  actions.get(key)?.();
});

// --- The button that adds the handbook

for (const button of document.querySelectorAll("[data-handbook]")) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await call("/api/handbook", { method: "POST" });
      if (location.pathname !== "/library") location.assign("/library");
    } catch (error) {
      show(sentence(error.message), true);
    }
    button.disabled = false;
  });
}
