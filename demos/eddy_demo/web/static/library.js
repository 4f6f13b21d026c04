// Uploads and watched folders with their progress, and the list of documents.
import { call, element, onProgress, parts, plural, send, sentence, share } from "./common.js";

const { files, drop, status, work, sure, closer } = parts;
const states = { waiting: "Waits to be read", reading: "Being read", embedding: "Being embedded" };
const rows = new Map(); // the elements of files and folders, by id or path
let shown = null;

/** Says something at a place of the page. */
function say(text, failed, place = status) {
  place.className = failed ? "status failed" : "status";
  place.textContent = text;
}

/** Does something, and says why if it fails. */
async function attempt(action, place = status) {
  try {
    await action();
    if (place !== status) say("", false, place);
  } catch (error) {
    say(sentence(error.message), true, place);
  }
}

// --- Upload

files.addEventListener("change", () => {
  send(files.files, say);
  files.value = "";
});
for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, () => drop.classList.add("over"));
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
addEventListener("drop", (event) => {
  if (event.dataTransfer?.files.length) send(event.dataTransfer.files, say);
});

// --- Files and folders in work

function button(label, name, action, place = status) {
  const made = element("button", { type: "button", class: "quiet", "aria-label": `${label} ${name}` }, label);
  made.addEventListener("click", async () => {
    made.disabled = true;
    await attempt(action, place);
    made.disabled = false;
  });
  return made;
}

function jobRow(job) {
  const cancel = () => call(`/api/jobs/${job.id}/cancel`, { method: "POST" });
  const name = job.document ? element("a", { class: "name", href: `/documents/${job.document}` }, job.name) : element("span", { class: "name" }, job.name);
  const acts = element("span", { class: "acts" });
  const message = element("p", { class: "message" });
  const made = element("li", { class: `job ${job.state}` }, name, acts, message);
  if (job.state === "failed") {
    acts.append(button("Put away", job.name, cancel));
    message.append(sentence(job.message));
  } else if (job.state === "done") {
    const said = job.older ? "In the library, beside an older document of this name." : sentence(job.message || "in the library");
    message.append([said, ...job.notes.map(sentence)].join(" "));
    if (job.older) acts.append(button("Delete the older", job.name, () => call(`/api/documents/${job.older}`, { method: "DELETE" })));
  } else {
    acts.append(button("Cancel", job.name, cancel));
    made.append(element("progress", { max: 1, "aria-label": `Embedding ${job.name}` }));
  }
  return made;
}

/** Returns the row of a file; it reuses the element of a file in progress, so that no click on its button is lost. */
function rowOf(job) {
  const goes = job.state in states;
  const key = JSON.stringify(goes ? job.name : job);
  const known = rows.get(job.id);
  const made = known?.key === key ? known.made : jobRow(job);
  if (known?.made.contains(document.activeElement) && known.made !== made) {
    known.made.replaceWith(made);
    made.querySelector("a, button")?.focus();
  }
  rows.set(job.id, { key, made });
  if (goes) {
    made.querySelector(".message").textContent = `${states[job.state]}.`;
    made.querySelector("progress").value = job.done;
  }
  return made;
}

function folderRow(folder) {
  const stop = button("Stop watching", folder.path, () => call(`/api/folders?path=${encodeURIComponent(folder.path)}`, { method: "DELETE" }), parts.folderStatus);
  return element("li", { class: "job" }, element("span", { class: "name" }, folder.path), element("span", { class: "acts" }, stop), element("div", { class: "message" }));
}

function folderState({ state, file, left, files, others }) {
  if (state === "gone") return "This folder is not there. Its documents stay, and it is watched again when it is back.";
  if (state === "watching") return `Watched: ${plural(files, "file")}${others ? `, and ${others} that are not read` : ""}.`;
  return `${states[state]}${file ? `: ${file}` : ""}.${left ? ` ${plural(left, "file")} come after these.` : ""}`;
}

function rowOfFolder(folder) {
  const key = JSON.stringify(folder);
  const known = rows.get(folder.path);
  const made = known?.made ?? folderRow(folder);
  const failed = [...folder.skipped, ...(folder.more ? [`… and ${folder.more} more`] : [])];
  if (known?.key !== key) {
    made.querySelector(".message").replaceChildren(
      element("p", {}, folderState(folder)),
      ...(failed.length ? [element("p", { class: "failed" }, "Not read:"), element("ul", { class: "failed" }, ...failed.map((line) => element("li", {}, line)))] : []),
    );
  }
  rows.set(folder.path, { key, made });
  return made;
}

/** Makes a list contain these elements without moving those already in place. */
function arrange(list, wanted) {
  const staying = new Set(wanted);
  for (const each of [...list.children]) if (!staying.has(each)) each.remove();
  let next = null;
  for (const each of [...wanted].reverse()) {
    if (each.parentNode !== list || each.nextElementSibling !== next) list.insertBefore(each, next);
    next = each;
  }
}

const more = element("li", { class: "job more" });

function showWork({ jobs, more: unlisted, folders }) {
  const active = jobs.filter((job) => job.state !== "done");
  const staying = new Set([...jobs.map((job) => job.id), ...folders.map((folder) => folder.path)]);
  for (const id of [...rows.keys()]) if (!staying.has(id)) rows.delete(id);
  more.textContent = `and ${plural(unlisted, "more file")}`;
  arrange(parts.jobs, [...jobs.map(rowOf), ...(unlisted ? [more] : [])]);
  if (parts.folders) arrange(parts.folders, folders.map(rowOfFolder));
  work.hidden = !jobs.length;
  parts.workTitle.textContent = active.length ? "Being read" : "Just read";
  parts.clear.hidden = active.length === jobs.length;
  parts.clearFailed.hidden = active.filter((job) => job.state === "failed").length < 2;
}

for (const [id, query] of [["clear", ""], ["clearFailed", "?failed=true"]]) {
  parts[id].addEventListener("click", () => attempt(() => call(`/api/jobs/clear${query}`, { method: "POST" })));
}
parts.watch?.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    await call(`/api/folders?path=${encodeURIComponent(parts.folder.value)}`, { method: "POST" });
    parts.folder.value = "";
  }, parts.folderStatus);
});

// --- Reading more closely

function showDeepening(rebuilding) {
  closer.hidden = !rebuilding?.deepening;
  if (closer.hidden) return;
  parts.closerText.textContent = `Reading more closely: ${share(rebuilding)}. Ask meanwhile; answers become better when it is done.`;
  parts.closerBar.value = rebuilding.done;
}

// --- Documents

let removing = null;

function documentRow(entry) {
  const about = [entry.title && entry.title !== entry.name ? entry.name : "", entry.pages ? plural(entry.pages, "page") : "", plural(entry.sentences, "sentence")];
  const remove = element("button", { type: "button", class: "quiet", "aria-label": `Delete ${entry.name}`, disabled: entry.removing }, entry.removing ? "Deleting" : "Delete");
  remove.addEventListener("click", () => {
    removing = entry.id;
    parts.sureName.textContent = entry.title || entry.name;
    sure.returnValue = "no";
    sure.showModal();
  });
  return element(
    "li",
    { class: `document-row${entry.removing ? " removing" : ""}` },
    element("div", {}, element("a", { class: "name", href: `/documents/${entry.id}` }, entry.title || entry.name), element("p", { class: "note" }, about.filter(Boolean).join(" · "))),
    ...(entry.uploaded ? [remove] : []),
  );
}

sure.addEventListener("close", () => {
  if (sure.returnValue !== "yes") return;
  attempt(async () => {
    await call(`/api/documents/${removing}`, { method: "DELETE" });
    await showDocuments();
  });
});

async function showDocuments() {
  const { documents, library } = await (await call("/api/documents")).json();
  parts.documents.replaceChildren(...documents.map(documentRow));
  parts.none.hidden = documents.length > 0;
  const plan = { fast: ", without its layers", deepen: ", so far without its layers" }[library.plan] ?? "";
  parts.totals.textContent = documents.length ? `${plural(documents.length, "document")}, read by ${library.model}${plan}` : "";
}

onProgress(async (progress) => {
  showWork(progress);
  showDeepening(progress.rebuilding);
  if (!progress.ready || progress.library === shown) return;
  shown = progress.library;
  await showDocuments().catch(() => (shown = null)); // requested again with the next progress
});
