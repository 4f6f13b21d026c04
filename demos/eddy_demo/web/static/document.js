// A document: shows the cited sentence, and the cosine of each sentence with the question.
import { element, onKey, parts } from "./common.js";
import { pageButton } from "./original.js";

const { text, pointed, nearest: list, heatOn: on } = parts;
const spans = [...text.querySelectorAll(".s")];
const measured = spans.filter((span) => span.dataset.c !== undefined);

/** Returns the elements of the sentences between two offsets. */
function between(start, end) {
  return spans.filter((span) => {
    const [from, to] = span.dataset.s.split("-").map(Number);
    return from < end && to > start;
  });
}

let button = null; // shows the page of the cited sentence

function point() {
  const match = /^#s-([0-9a-f]{16})-(\d+)-(\d+)$/.exec(location.hash);
  for (const span of spans) span.classList.remove("here");
  pointed.textContent = "";
  const open = button?.getAttribute("aria-expanded") === "true";
  if (open) button.click();
  button?.remove();
  button = null;
  if (!match || match[1] !== text.dataset.document) return;
  const [start, end] = [Number(match[2]), Number(match[3])];
  const found = between(start, end);
  if (!found.length) {
    pointed.textContent = "The place that this address names is not in the document any more.";
    return;
  }
  for (const span of found) span.classList.add("here");
  if ("drawn" in text.dataset) {
    button = pageButton({ link: location.hash, drawn: true });
    found.at(-1).closest(".block").after(button);
    if (open) button.click();
  }
  reveal(found[0]);
}

/** Scrolls to an element; blocks above it that were never laid out get their true height meanwhile. */
function reveal(span) {
  const middle = { block: "center" };
  span.scrollIntoView(middle);
  requestAnimationFrame(() => {
    span.scrollIntoView(middle);
    requestAnimationFrame(() => span.scrollIntoView(middle));
  });
}

addEventListener("hashchange", point);
point();

// --- Heat

if (measured.length) {
  const values = measured.map((span) => Number(span.dataset.c));
  const low = [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const high = Math.max(...values);
  measured.forEach((span, at) => {
    const share = high > low ? Math.max((values[at] - low) / (high - low), 0) : 0;
    span.style.setProperty("--h", `${(share ** 1.6 * 65).toFixed(1)}%`);
  });
  const heat = () => text.classList.toggle("hot", on.checked);
  on.addEventListener("change", heat);
  heat();

  const seen = new Set();
  const nearest = measured
    .map((span, at) => [values[at], span])
    .sort((a, b) => b[0] - a[0])
    .filter(([, span]) => /\p{L}{2}/u.test(span.textContent)) // skips fragments of code
    .filter(([, span]) => !seen.has(span.dataset.s) && seen.add(span.dataset.s))
    .slice(0, 20);
  for (const [, span] of nearest.slice(0, 8)) {
    const hash = `#s-${text.dataset.document}-${span.dataset.s}`;
    list.append(element("li", {}, element("a", { href: hash }, span.textContent.trim().slice(0, 80))));
  }
  let at = -1;
  const step = (by) => {
    at = Math.min(Math.max(at + by, 0), nearest.length - 1);
    location.hash = `s-${text.dataset.document}-${nearest[at][1].dataset.s}`;
  };
  onKey("j", () => step(1));
  onKey("k", () => step(-1));
}
