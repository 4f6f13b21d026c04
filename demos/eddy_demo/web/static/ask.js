// Sends the question and shows the answer: sentences of the documents, with links to them.
import { call, element, onKey, onProgress, plural, sentence } from "./common.js";
import { pageButton } from "./original.js";

const form = document.getElementById("ask");
const question = document.getElementById("question");
const status = document.getElementById("status");
const found = document.getElementById("found");
const hits = document.getElementById("hits");
const answer = document.getElementById("answer");
const answerBody = document.getElementById("answer-body");
const written = document.getElementById("written");
const writtenBody = document.getElementById("written-body");
const writtenNote = document.getElementById("written-note");
const stop = document.getElementById("stop");
const rerank = document.getElementById("rerank"); // none where the model cannot re-rank
const stopReranking = document.getElementById("stop-reranking");
const within = document.getElementById("within")?.value ?? ""; // the only document that is asked
const followUp = document.getElementById("follow-up");
let topic = new URLSearchParams(location.search).get("after") ?? ""; // the last question that could stand alone
let after = ""; // the question that the shown one is read with
let running = null;
let inVain = false; // whether the model wrote, and nothing of it is shown
let reading = ""; // the document that is being embedded

/** Describes the location of a passage or sentence. */
function where(place) {
  return [place.cited, place.headings.replaceAll(" > ", " › ")].filter(Boolean).join(" · ");
}

/** The query of an address at which the question is asked, after another one if that is not "". */
function asking(text, previous) {
  return new URLSearchParams({ ...(text && { q: text }), ...(within && { in: within }), ...(previous && { after: previous }) }).toString();
}

/** The address of a passage or sentence, with the question, so that the document can show its heat. */
function address(link) {
  const [path, hash] = link.split("#");
  return `${path}?${asking(question.value.trim(), after)}#${hash}`;
}

/** Says which question this one is read with. */
function showFollowUp(text, previous) {
  after = previous;
  followUp.replaceChildren("Read as a follow-up to: ", element("strong", {}, previous), "; ", element("a", { href: `/?${asking(text, "")}` }, "ask it alone"));
  followUp.hidden = false;
}

function showAnswer(data) {
  answerBody.replaceChildren();
  for (const each of data.sentences) {
    const cite = element("a", { class: "cite", href: address(each.link), "aria-label": `Sentence ${each.n}, in ${each.name}` }, `${each.n}`);
    answerBody.append(
      element("p", { class: "quote" }, each.text.replace(/^[-*+•] +/, ""), cite),
      element("p", { class: "source" }, element("a", { href: address(each.link) }, each.title || each.name), where(each) ? ` · ${where(each)}` : "", pageButton(each)),
    );
  }
  if (!data.sentences.length) {
    answerBody.append(
      element("p", { class: "honest" }, "Not in your documents."),
      element("p", { class: "note" }, "Ask in other words, or look at the closest passages below."),
    );
  }
  answer.hidden = false;
}

/** Removes heading marks from a text. */
function unmarked(text) {
  return text.replace(/^#{1,6}[ \t]+/gm, "");
}

/** Makes empty lines of a text smaller. */
function spaced(text) {
  return unmarked(text).split(/(\n\s*\n)/).map((part, at) => (at % 2 ? element("span", { class: "gap" }) : part));
}

/** The words of the question stand out. */
function shown(pieces) {
  return pieces.flatMap((piece, at) => {
    if (piece.word) return [element("b", {}, piece.text)];
    // A mark of a heading begins a line; behind a word it is text, as in "C#".
    return at && !piece.text.startsWith("\n") ? [piece.text.charAt(0), ...spaced(piece.text.slice(1))] : spaced(piece.text);
  });
}

function showHit(hit) {
  const passage = element("p", { class: "passage" });
  for (const part of hit.parts) passage.append(...(part.best ? [element("mark", {}, ...shown(part.pieces))] : shown(part.pieces)));
  const about = where(hit);
  hits.append(
    element(
      "li",
      { class: "hit" },
      element(
        "header",
        {},
        element("span", { class: "rank" }, `${hit.rank}`),
        element("span", { class: "place" }, element("a", { class: "name", href: address(hit.link) }, hit.title || hit.name), about ? element("span", { class: "where" }, ` ${about}`) : null),
        element("meter", { class: "fit", min: 0, max: 1, value: hit.fit, title: "How much of the question the passage covers", "aria-label": "fit" }),
        pageButton(hit),
      ),
      passage,
    ),
  );
  found.hidden = false;
}

function showWritten(event, data) {
  written.hidden = false;
  status.textContent = "Writing …";
  stop.hidden = false;
  if (event === "writing") writtenNote.textContent = data.note;
  else if (event === "text" && data.text) writtenBody.append(`${writtenBody.hasChildNodes() ? " " : ""}${data.text}`);
  else if (event === "cite") {
    writtenBody.append(element("a", { class: "cite", href: address(data.link), title: data.text }, `${data.n}`));
  } else if (event === "written") {
    inVain = !writtenBody.hasChildNodes();
    endWriting();
    if (data.repeated) writtenNote.append(` ${plural(data.repeated, "sentence")} left out: quoted above.`);
    if (data.left_out) writtenNote.append(` ${plural(data.left_out, "sentence")} left out: no sentence found says so.`);
  }
}

/** Says how far the model is with reranking; what was found stays until it is done. */
function showReranking({ done, total }) {
  status.textContent = total ? `The model re-ranks the passages: ${done} of ${total} …` : "The model begins to re-rank the passages …";
  stopReranking.hidden = false;
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
  after = "";
  inVain = false;
  for (const part of [answer, found, written, followUp, stopReranking]) part.hidden = true;
  for (const part of [hits, writtenBody, writtenNote]) part.replaceChildren();
  status.className = "status";
  status.textContent = "";
}

async function ask() {
  const text = question.value.trim();
  const previous = topic === text ? "" : topic;
  clear();
  document.getElementById("empty")?.remove();
  if (!text) {
    status.textContent = "Type a question first.";
    return;
  }
  const own = (running = new AbortController());
  status.textContent = reading ? `Looking … ${reading} is being read at the same time, so this takes longer.` : "Looking …";
  const began = performance.now();
  let answered = false;
  let seconds = 0; // until the answer; what the model writes takes longer
  try {
    const response = await call(`/api/ask?q=${encodeURIComponent(text)}${within && `&document=${within}`}${previous && `&after=${encodeURIComponent(previous)}`}${rerank?.checked ? "&rerank=true" : ""}`, { signal: own.signal });
    for await (const [name, data] of events(response)) {
      if (own.signal.aborted) return;
      if (name === "follow-up") showFollowUp(text, data.to);
      else if (name === "answer") {
        answered = true;
        seconds ||= (performance.now() - began) / 1000;
        showAnswer(data);
        if (!after) {
          topic = text;
          history.replaceState(null, "", `/?${asking(text, "")}`);
        }
      }
      else if (name === "hit") showHit(data);
      else if (name === "busy") status.textContent = data.note;
      else if (name === "reranking") showReranking(data);
      else if (name === "again") {
        hits.replaceChildren();
        stopReranking.hidden = true;
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
    stopReranking.hidden = true;
    status.className = "status failed";
    status.textContent = sentence(error.message);
  }
}

for (const button of [stop, stopReranking]) {
  button.addEventListener("click", () => {
    running?.abort();
    endWriting();
    stopReranking.hidden = true;
    status.textContent = "Stopped.";
  });
}
if (rerank) {
  rerank.checked = localStorage.getItem("rerank") === "true";
  rerank.addEventListener("change", () => localStorage.setItem("rerank", rerank.checked));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  const asked = asking(text, text && topic !== text ? topic : "");
  const address = asked ? `/?${asked}` : "/";
  if (`${location.pathname}${location.search}` !== address) history.pushState(null, "", address);
  question.blur();
  ask();
});
addEventListener("popstate", () => {
  const asked = new URLSearchParams(location.search);
  if ((asked.get("in") ?? "") !== within) return location.reload();
  question.value = asked.get("q") ?? "";
  topic = asked.get("after") ?? "";
  if (question.value) ask();
  else clear();
});

document.getElementById("forget")?.addEventListener("click", async () => {
  try {
    await call("/api/questions", { method: "DELETE" });
    document.getElementById("asked")?.remove();
  } catch (error) {
    status.className = "status failed";
    status.textContent = sentence(error.message);
  }
});

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
  reading = progress.jobs.find((job) => job.state === "embedding")?.name ?? "";
  if (progress.ready && document.querySelector(".opening")) location.reload();
  // The library has its first documents: replace the empty page.
  if (known !== null && progress.library !== known && document.querySelector(".empty")) location.reload();
  known = progress.library;
});

if (question.value) ask();
else if (matchMedia("(pointer: fine)").matches) question.focus();
