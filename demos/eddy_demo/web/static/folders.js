// Watched folders: which they are, how far each is read, and what in them cannot be read.
import { call, element, onProgress, plural, sentence } from "./common.js";

const folder = document.getElementById("folder");
const list = document.getElementById("folders");
const status = document.getElementById("folder-status");
const rows = new Map();

async function tell(action) {
  status.textContent = "";
  try {
    await action();
  } catch (error) {
    status.className = "status failed";
    status.textContent = sentence(error.message);
  }
}

document.getElementById("watch").addEventListener("submit", (event) => {
  event.preventDefault();
  tell(async () => {
    await call(`/api/folders?path=${encodeURIComponent(folder.value)}`, { method: "POST" });
    folder.value = "";
  });
});

function row(path) {
  const stop = element("button", { type: "button", class: "quiet", "aria-label": `Stop watching ${path}` }, "Stop watching");
  stop.addEventListener("click", () => tell(() => call(`/api/folders?path=${encodeURIComponent(path)}`, { method: "DELETE" })));
  return element("li", { class: "job" }, element("span", { class: "name" }, path), element("span", { class: "acts" }, stop), element("div", { class: "message" }));
}

function said(own) {
  const rest = own.left ? ` ${plural(own.left, "file")} come after these.` : "";
  if (own.state === "gone") return "This folder is not there. Its documents stay, and it is watched again when it is back.";
  if (own.state === "waiting") return "Waits to be read.";
  if (own.state === "reading") return `Being read: ${own.file}.${rest}`;
  if (own.state === "embedding") return `Being embedded: ${own.file}.${rest}`;
  return `Watched: ${plural(own.files, "file")}${own.others ? `, and ${own.others} that are not read` : ""}.`;
}

onProgress(({ folders }) => {
  for (const path of [...rows.keys()]) if (!folders.some((own) => own.path === path)) rows.delete(path);
  for (const own of folders) {
    const made = rows.get(own.path)?.made ?? row(own.path);
    const key = JSON.stringify(own);
    if (rows.get(own.path)?.key !== key) {
      made.dataset.state = own.state;
      const failed = [...own.skipped, ...(own.more ? [`… and ${own.more} more`] : [])];
      made.querySelector(".message").replaceChildren(
        element("p", {}, said(own)),
        ...(own.problem ? [element("p", { class: "failed" }, sentence(own.problem))] : []),
        ...(failed.length ? [element("p", { class: "failed" }, "Not read:"), element("ul", { class: "failed" }, ...failed.map((line) => element("li", {}, line)))] : []),
      );
    }
    rows.set(own.path, { made, key });
  }
  const wanted = folders.map((own) => rows.get(own.path).made);
  if (wanted.length !== list.children.length || wanted.some((made, at) => list.children[at] !== made)) list.replaceChildren(...wanted);
});
