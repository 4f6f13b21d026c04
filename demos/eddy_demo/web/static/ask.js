// Sends the question and shows the answer: sentences of the documents, with links to them.
import { call, element, onKey, onProgress, parts, plural, sentence, store, stored } from "./common.js";
import { pageButton } from "./original.js";

const { ask: form, question, status, found, hits, answer, answerBody, asked } = parts;
const { written, writtenBody, writtenNote, stop, rerank } = parts; // no `rerank` where the model cannot
const within = parts.within?.value ?? ""; // the only document that is asked
let running = null;
let inVain = false; // whether the model wrote, and nothing of it is shown

/** The query of an address at which a question is asked. */
function asking(text) {
  return new URLSearchParams({ ...(text && { q: text }), ...(within && { in: within }) }).toString();
}

/** The address of a passage or sentence, with the question, so that the document can show its heat. */
function address(link) {
  const [path, hash] = link.split("#");
  return `${path}?${asking(question.value.trim())}#${hash}`;
}

/** Describes the location of a sentence: a link to it, its page and its section, and for a PDF file its page's button. */
function source(place, name = "") {
  const about = [place.cited, place.headings.replaceAll(" > ", " › ")].filter(Boolean).join(" · ");
  return [
    element("span", { class: "place" }, element("a", { class: name, href: address(place.link) }, place.title || place.name), about ? element("span", { class: "where" }, ` · ${about}`) : null),
    pageButton(place),
  ];
}

/** Makes a table of rows, whose cells are lists of nodes; the first one is its head. */
function table(rows) {
  return element("div", { class: "table", tabIndex: 0 }, element("table", {}, ...rows.map(({ cells, best, tag = "td" }) => element("tr", { class: best ? "best" : null }, ...cells.map((cell) => element(tag, {}, ...cell))))));
}

function showAnswer(data) {
  answerBody.replaceChildren();
  for (const quote of data.sentences) {
    const cite = element("a", { class: "cite", href: address(quote.link), "aria-label": `Sentence ${quote.n}, in ${quote.name}` }, `${quote.n}`);
    const head = quote.head.length ? [{ cells: quote.head.map((cell) => [cell]), tag: "th" }] : [];
    const cells = quote.row.map((cell, at) => (at + 1 < quote.row.length ? [cell] : [cell, cite]));
    answerBody.append(
      cells.length ? element("div", { class: "quote" }, table([...head, { cells }])) : element("p", { class: "quote" }, quote.text, cite),
      element("div", { class: "source" }, ...source(quote).filter(Boolean)),
    );
  }
  if (!data.sentences.length) {
    answerBody.append(
      element("p", { class: "honest" }, data.answers ? "No sentence to quote: see the passages below." : "Not in your documents."),
      element("p", { class: "note" }, "Ask in other words, or look at the closest passages below."),
    );
  }
  answer.hidden = false;
}

/** Removes heading marks from a text, and makes its empty lines smaller. */
function spaced(text) {
  return text.replace(/^#{1,6}[ \t]+/gm, "").split(/(\n\s*\n)/).map((part, at) => (at % 2 ? element("span", { class: "gap" }) : part));
}

/** The words of the question stand out. */
function shown(pieces) {
  return pieces.flatMap((piece, at) => {
    if (piece.word) return [element("b", {}, piece.text)];
    // A mark of a heading begins a line; behind a word it is text, as in "C#".
    return at && !piece.text.startsWith("\n") ? [piece.text.charAt(0), ...spaced(piece.text.slice(1))] : spaced(piece.text);
  });
}

/** Makes a passage of its parts; rows that follow each other are one table. */
function passage(hitParts) {
  const made = element("div", { class: "passage" });
  let rows = [];
  for (const { pieces, cells, best } of [...hitParts, { pieces: [{ text: " " }] }]) {
    if (cells) rows.push({ cells: cells.map(shown), best, tag: rows.length ? "td" : "th" });
    else if (!rows.length || !pieces.every((piece) => /^\n?$/.test(piece.text))) {
      if (rows.length) made.append(table(rows));
      rows = [];
      made.append(...(best ? [element("mark", {}, ...shown(pieces))] : shown(pieces)));
    }
  }
  return made;
}

function showHit(hit) {
  const [place, button] = source(hit, "name");
  const fit = element("meter", { class: "fit", min: 0, max: 1, value: hit.fit, title: "How much of the question the passage covers", "aria-label": "fit" });
  hits.append(element("li", { class: "hit" }, element("header", {}, element("span", { class: "rank" }, `${hit.rank}`), place, fit, button), passage(hit.parts)));
  found.hidden = false;
}

function showWritten(event, data) {
  written.hidden = false;
  offerStop("Writing …", "Stop writing");
  if (event === "writing") writtenNote.textContent = data.note;
  else if (event === "text" && data.text) writtenBody.append(`${writtenBody.hasChildNodes() ? " " : ""}${data.text}`);
  else if (event === "cite") {
    writtenBody.append(element("a", { class: "cite", href: address(data.link), title: data.text }, `${data.n}`));
  } else if (event === "written") {
    inVain = !writtenBody.hasChildNodes();
    endWriting();
    if (data.left_out) writtenNote.append(` ${plural(data.left_out, "sentence")} left out: quoted above, or said by no sentence found.`);
  }
}

/** Says how far the model is with reranking; what was found stays until it is done. */
function showReranking({ done, total }) {
  offerStop(total ? `The model re-ranks the passages: ${done} of ${total} …` : "The model begins to re-rank the passages …", "Stop re-ranking");
}

function offerStop(what, label) {
  status.textContent = what;
  stop.textContent = label;
  stop.hidden = false;
}

/** What the model wrote stays; where it wrote nothing that is shown, nothing of it does. */
function endWriting() {
  stop.hidden = true;
  written.hidden = !writtenBody.hasChildNodes();
}

/** Says what was found in how many seconds, and that the model wrote in vain, if it did. */
function showDone(passages, seconds, reranked) {
  const added = `${reranked === null ? "" : `; re-ranked in ${reranked.toFixed(1)} seconds`}${inVain ? "; the model added nothing" : ""}`;
  status.textContent = passages ? `${plural(passages, "passage")} in ${seconds.toFixed(2)} seconds${added}` : "";
}

/** Yields the events of a stream. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true };
    });
    if (done) throw new Error("the answer broke off; is the server still running? Ask again");
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const name = /^event: (.*)$/m.exec(part);
      const data = /^data: (.*)$/m.exec(part);
      if (name && data) yield [name[1], JSON.parse(data[1])];
      if (name?.[1] === "done") return;
    }
  }
}

/** Removes what was found, and stops what is under way. */
function clear() {
  running?.abort();
  inVain = false;
  for (const part of [answer, found, written, stop]) part.hidden = true;
  for (const part of [hits, writtenBody, writtenNote]) part.replaceChildren();
  status.className = "status";
  status.textContent = "";
}

async function ask() {
  const text = question.value.trim();
  clear();
  parts.empty?.remove();
  if (!text) {
    status.textContent = "Type a question first.";
    return;
  }
  const own = (running = new AbortController());
  status.textContent = "Looking …";
  const began = performance.now();
  let answered = false;
  let seconds = 0; // until the answer; what the model writes takes longer
  try {
    const query = new URLSearchParams({ q: text, ...(within && { document: within }), ...(rerank?.checked && { rerank: true }) });
    const response = await call(`/api/ask?${query}`, { signal: own.signal });
    for await (const [name, data] of events(response)) {
      if (own.signal.aborted) return;
      if (name === "answer") {
        answered = true;
        seconds ||= (performance.now() - began) / 1000;
        showAnswer(data);
        remember(text);
        history.replaceState(null, "", `/?${asking(text)}`);
      }
      else if (name === "hit") showHit(data);
      else if (name === "reranking") showReranking(data);
      else if (name === "again") {
        hits.replaceChildren();
        stop.hidden = true;
      }
      else if (name === "failed") throw new Error(data.error);
      else if (name === "done") showDone(data.passages, seconds, data.reranked);
      else showWritten(name, data);
    }
    if (!answered) {
      answer.hidden = true;
      status.replaceChildren("The library has no document yet. ", element("a", { href: "/library" }, "Put some in."));
    } else if (!hits.children.length) {
      answerBody.querySelector(".note").textContent = "No passage has the words in quotation marks, or every one has a word with a minus. Ask without these signs.";
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    endWriting();
    status.className = "status failed";
    status.textContent = sentence(error.message);
  }
}

stop.addEventListener("click", () => {
  running?.abort();
  endWriting();
  status.textContent = "Stopped.";
});
if (rerank) {
  rerank.checked = stored("rerank") === "true";
  rerank.addEventListener("change", () => store("rerank", rerank.checked));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const query = asking(question.value.trim());
  const address = query ? `/?${query}` : "/";
  if (`${location.pathname}${location.search}` !== address) history.pushState(null, "", address);
  question.blur();
  ask();
});
addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  if ((query.get("in") ?? "") !== within) return location.reload();
  question.value = query.get("q") ?? "";
  if (question.value) ask();
  else clear();
});

// --- The last questions, which only this browser knows

function recent() {
  try {
    return [...JSON.parse(stored("questions") ?? "[]")];
  } catch {
    return []; // not what this page wrote
  }
}

function remember(text) {
  store("questions", JSON.stringify([text, ...recent().filter((other) => other !== text)].slice(0, 3)));
}

if (asked) {
  asked.hidden = !recent().length;
  asked.querySelector("ul").append(...recent().map((text) => element("li", {}, element("a", { href: `/?${new URLSearchParams({ q: text })}` }, text))));
  parts.forget.addEventListener("click", () => {
    localStorage.removeItem("questions");
    asked.remove();
  });
}

function step(by) {
  const links = [...hits.querySelectorAll(".name")];
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next?.focus({ preventScroll: true });
  next?.closest(".hit").scrollIntoView({ block: "center" });
}
onKey("j", () => step(1));
onKey("k", () => step(-1));

let known = null;
onProgress((progress) => {
  if (progress.ready && document.querySelector(".opening")) location.reload();
  // The library has its first documents: replace the empty page.
  if (known !== null && progress.library !== known && document.querySelector(".empty")) location.reload();
  known = progress.library;
});

if (question.value) ask();
else if (matchMedia("(pointer: fine)").matches) question.focus();
