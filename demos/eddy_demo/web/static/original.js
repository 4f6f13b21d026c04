// The original: the page of a PDF as an image beside a sentence, which is marked on it.
import { call, element, sentence } from "./common.js";

let shown = null; // the image that is open, and its button

/** Makes the button that shows the page of a sentence; null for what is no PDF file. */
export function pageButton({ link, drawn }) {
  if (!drawn) return null;
  const [, key, start, end] = /#s-([0-9a-f]{16})-(\d+)-(\d+)$/.exec(link);
  const button = element("button", { type: "button", class: "quiet show-page", "aria-expanded": "false" }, "Show the page");
  button.addEventListener("click", () => {
    const opens = shown?.button !== button;
    close();
    if (opens) open(button, `/api/documents/${key}/page?start=${start}&end=${end}`);
  });
  return button;
}

async function open(button, path) {
  const caption = element("p", { class: "note", role: "status" }, "Drawing the page …");
  const end = element("button", { type: "button", class: "quiet" }, "Close");
  const figure = element("figure", { class: "original" }, element("figcaption", {}, caption, end));
  end.addEventListener("click", leave);
  shown = { button, figure };
  button.textContent = "Hide the page";
  button.setAttribute("aria-expanded", "true");
  (button.closest("header, .source") ?? button).after(figure);
  button.scrollIntoView({ block: "nearest" }); // the text becomes narrower and moves
  try {
    const response = await call(path);
    const told = response.headers.get("x-eddy-caption");
    await response.blob(); // then the image comes out of the browser's cache
    caption.textContent = told;
    figure.append(element("a", { href: path, target: "_blank", title: "The image alone" }, element("img", { src: path, alt: told })));
  } catch (error) {
    caption.textContent = sentence(error.message);
  }
}

function close() {
  if (!shown) return;
  shown.figure.remove();
  shown.button.textContent = "Show the page";
  shown.button.setAttribute("aria-expanded", "false");
  shown = null;
}

/** Closes the image, and gives the focus back. */
function leave() {
  const { button } = shown;
  close();
  button.focus();
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown && !event.target.closest("dialog")) leave();
});
