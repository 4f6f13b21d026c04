// Uploads with their progress, and the list of documents.
import { call, duration, element, onProgress, plural, sentence, share, token, reason } from "./common.js";

const files = document.getElementById("files");
const drop = document.getElementById("drop");
const status = document.getElementById("status");
const work = document.getElementById("work");
const list = document.getElementById("jobs");
const shelf = document.getElementById("documents");
const sure = document.getElementById("sure");
const stages = [["waiting", "waiting"], ["reading", "reading"], ["embedding", "embedding"]];
const sending = new Map();
const most = 5; // number of finished files listed by name
let shown = null;

function failed(error) {
  status.className = "status failed";
  status.textContent = sentence(error.message);
}

// --- Upload

function send(file) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const row = element("li", { class: "job" }, element("span", { class: "name" }, file.name), element("progress", { max: 1, value: 0, "aria-label": `Uploading ${file.name}` }), element("p", { class: "message" }, "uploading"));
    sending.set(row, request);
    list.prepend(row);
    work.hidden = false;
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) row.querySelector("progress").value = event.loaded / event.total;
    });
    request.addEventListener("loadend", async () => {
      sending.delete(row);
      row.remove();
      if (request.status === 200) return resolve("");
      const message = request.status ? await reason(new Response(request.responseText, { status: request.status })) : "it could not be sent; is the server still running?";
      resolve(message.includes(file.name) ? message : `${file.name}: ${message}`);
    });
    request.open("POST", `/api/uploads?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("x-eddy-token", token());
    request.send(file);
  });
}

async function sendAll(chosen) {
  const failures = [];
  const queue = [...chosen];
  status.className = "status";
  status.textContent = queue.length > 1 ? `${queue.length} files are being sent …` : "";
  const lane = async () => {
    while (queue.length) {
      const failure = await send(queue.shift());
      if (failure) failures.push(failure);
    }
  };
  await Promise.all([lane(), lane(), lane()]);
  status.className = failures.length ? "status failed" : "status";
  status.textContent = failures.length ? `Not taken: ${failures.map(sentence).join(" ")}` : "";
}

files.addEventListener("change", () => {
  sendAll(files.files);
  files.value = "";
});
for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, () => drop.classList.add("over"));
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
addEventListener("drop", (event) => {
  if (event.dataTransfer?.files.length) sendAll(event.dataTransfer.files);
});

// --- Progress

function button(label, name, action, kind = "quiet") {
  const made = element("button", { type: "button", class: kind, "aria-label": `${label} ${name}` }, label);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await action();
    } catch (error) {
      failed(error);
    }
    made.disabled = false;
  });
  return made;
}

function stage(job) {
  const at = stages.findIndex(([state]) => state === job.state);
  const line = stages.slice(1).flatMap(([, label], number) => {
    const state = number + 1 < at ? "past" : number + 1 === at ? "now" : "";
    return [...(number ? ["›"] : []), element("span", { class: state }, label)];
  });
  return job.left === null || job.left === undefined ? line : [...line, `· ${duration(job.left)} left`];
}

function act(id, action) {
  return () => call(`/api/jobs/${id}/${action}`, { method: "POST" });
}

const over = (job) => ["done", "known"].includes(job.state);

function row(job) {
  const name = job.document && over(job) ? element("a", { class: "name", href: `/documents/${job.document}` }, job.name) : element("span", { class: "name" }, job.name);
  const acts = element("span", { class: "acts" });
  const made = element("li", { "data-id": job.id }, name, acts);
  if (job.state === "failed") {
    acts.append(button("Try again", job.name, act(job.id, "retry")), button("Put away", job.name, act(job.id, "cancel")));
    made.append(element("p", { class: "message" }, sentence(job.message)));
  } else if (over(job)) {
    const said = job.older ? "In the library, beside an older document of this name." : job.state === "done" ? "In the library." : sentence(job.message);
    made.append(element("p", { class: "message" }, [said, ...job.notes.map(sentence)].join(" ")));
    if (job.older) acts.append(button("Delete the older", job.name, () => call(`/api/documents/${job.older}`, { method: "DELETE" })));
  } else {
    acts.append(button("Cancel", job.name, act(job.id, "cancel")));
    made.append(element("p", { class: "stages" }), element("progress", { max: 1, "aria-label": `Embedding ${job.name}` }));
  }
  return made;
}

const rows = new Map();

/** Returns the row of a file; it reuses the element of a file in progress, so that no click on its button is lost. */
function rowOf(job) {
  const key = JSON.stringify(job.state === "failed" || over(job) ? job : job.name);
  const known = rows.get(job.id);
  let made = known?.made;
  if (known?.key !== key) {
    const focused = made?.contains(document.activeElement) ? document.activeElement.textContent : null;
    made = row(job);
    rows.set(job.id, { key, made });
    if (focused !== null) {
      known.made.replaceWith(made);
      const buttons = [...made.querySelectorAll("a, button")];
      (buttons.find((each) => each.textContent === focused) ?? buttons[0])?.focus();
    }
  }
  made.className = `job ${job.state}`;
  made.dataset.state = job.state;
  made.querySelector(".stages")?.replaceChildren(...stage(job));
  const bar = made.querySelector("progress");
  if (bar) bar.value = job.done;
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

function showWork(progress) {
  const active = progress.jobs.filter((job) => !over(job));
  const finished = progress.jobs.filter(over);
  const plain = finished.filter((job) => job.state === "done" && !job.notes.length && !job.older);
  const left = new Set(plain.slice(0, -most)); // the list of documents shows them
  const shown = [...active, ...finished.filter((job) => !left.has(job))];
  const ids = new Set(shown.map((job) => job.id));
  for (const id of [...rows.keys()]) if (!ids.has(id)) rows.delete(id);
  more.textContent = `and ${plural(left.size, "more file")}`;
  arrange(list, [...sending.keys(), ...shown.map(rowOf), ...(left.size ? [more] : [])]);
  work.hidden = !list.children.length;
  document.getElementById("work-title").textContent = active.length ? "Being read" : "Just read";
  document.getElementById("clear").hidden = active.length === progress.jobs.length;
  document.getElementById("clear-failed").hidden = active.filter((job) => job.state === "failed").length < 2;
}

// --- Reading more closely

const closer = document.getElementById("closer");
const long = 1800; // seconds from which a smaller model is worth a thought

function showDeepening(rebuilding) {
  closer.hidden = !rebuilding?.deepening;
  if (closer.hidden) return;
  const slow = rebuilding.left > long ? ` The model reads ${plural(rebuilding.speed, "token")} a second here; a smaller one, which you may choose below, reads faster.` : "";
  document.getElementById("closer-text").textContent = `Reading more closely: ${share(rebuilding)}. Ask meanwhile; answers become better when it is done.${slow}`;
  document.getElementById("closer-bar").value = rebuilding.done;
}

// --- Documents

let removing = null;

function documentRow(entry) {
  const about = [entry.pages ? plural(entry.pages, "page") : "", plural(entry.sentences, "sentence"), plural(entry.passages, "passage")];
  const remove = element("button", { type: "button", class: "quiet", "aria-label": `Delete ${entry.name}`, disabled: entry.removing }, entry.removing ? "Deleting" : "Delete");
  remove.addEventListener("click", () => {
    removing = entry.id;
    document.getElementById("sure-name").textContent = entry.title || entry.name;
    sure.returnValue = "no";
    sure.showModal();
  });
  return element(
    "li",
    { class: `document-row${entry.removing ? " removing" : ""}`, "data-id": entry.id },
    element("div", {}, element("a", { class: "name", href: `/documents/${entry.id}` }, entry.title || entry.name), element("p", { class: "note" }, [entry.title && entry.title !== entry.name ? entry.name : "", ...about].filter(Boolean).join(" · "))),
    ...(entry.uploaded ? [remove] : []),
  );
}

sure.addEventListener("close", async () => {
  if (sure.returnValue !== "yes" || !removing) return;
  try {
    await call(`/api/documents/${removing}`, { method: "DELETE" });
    await showDocuments();
  } catch (error) {
    failed(error);
  }
});

async function showDocuments() {
  const { documents, library } = await (await call("/api/documents")).json();
  shelf.replaceChildren(...documents.map(documentRow));
  document.getElementById("none").hidden = documents.length > 0;
  document.getElementById("totals").textContent = documents.length ? `${plural(documents.length, "document")}, ${plural(library.passages, "passage")}, ${plural(library.tokens, "token")}` : "";
  document.getElementById("settings").hidden = !documents.length;
  document.getElementById("model").textContent = library.model;
  document.getElementById("plan").textContent = plans[library.plan];
}

const plans = { chosen: "", best: "", fast: ", without its layers", deepen: ", so far without its layers" };
const models = document.getElementById("models");
document.getElementById("other").addEventListener("toggle", async (event) => {
  if (!event.target.open) return;
  try {
    const found = await (await call("/api/models")).json();
    models.replaceChildren(...found.filter((model) => !model.own).map((model) => element("option", { value: model.name }, `${model.name} (${(model.bytes / 1e6).toFixed(0)} MB)`)));
  } catch (error) {
    failed(error);
  }
});
document.getElementById("change").addEventListener("submit", (event) => {
  event.preventDefault();
  document.getElementById("other").open = false;
  call(`/api/rebuild?model=${encodeURIComponent(models.value)}`, { method: "POST" }).catch(failed);
});

for (const [id, query] of [["clear", ""], ["clear-failed", "?failed=true"]]) {
  document.getElementById(id).addEventListener("click", () => call(`/api/jobs/clear${query}`, { method: "POST" }).catch(failed));
}

onProgress(async (progress) => {
  showWork(progress);
  showDeepening(progress.rebuilding);
  if (!progress.ready || progress.library === shown) return;
  shown = progress.library;
  try {
    await showDocuments();
  } catch {
    shown = null; // requested again with the next progress
  }
});
