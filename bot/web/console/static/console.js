// Makes the pages livelier; they work without it.
"use strict";
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  const cookie = `countersign-zone=${encodeURIComponent(zone)}`;
  if (zone && !document.cookie.split("; ").includes(cookie))
    document.cookie = `${cookie}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  document.addEventListener("DOMContentLoaded", () => {
    if (matchMedia("(max-width: 52rem)").matches) document.querySelector("details.menu")?.removeAttribute("open");
  });
  // An open sheet closes when the page is clicked elsewhere, and by Escape.
  const close = (except) => document.querySelectorAll("details.who[open], details.more[open]").forEach(
    (sheet) => { if (!except || !sheet.contains(except)) sheet.open = false; });
  document.addEventListener("click", (event) => close(event.target));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  // A form is sent once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
  });
})();
// Keys on a list of calls: j and k move, a and d go to the buttons of the call, Enter presses them.
(() => {
  const step = (calls, by) => calls[Math.max(0, Math.min(calls.length - 1, calls.findIndex((call) => call.contains(document.activeElement)) + by))];
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const calls = [...document.querySelectorAll("[data-call]")];
    if (!calls.length) return;
    if (event.key === "j" || event.key === "k") {
      const call = step(calls, event.key === "j" ? 1 : -1);
      call.focus();
      call.scrollIntoView({ block: "nearest" });
    } else if ("ade".includes(event.key) && event.key.length === 1) {
      const call = calls.find((each) => each.contains(document.activeElement)) || calls[0];
      const target = call.querySelector(`[data-key="${event.key}"]`);
      if (!target) return;
      target.focus();
      if (event.key === "d") {
        target.parentElement.open = true;
        target.parentElement.querySelector("textarea").focus();
      }
      if (event.key === "e") target.click();
    } else return;
    event.preventDefault();
  });
  // Enter in the reason denies; Shift and Enter begin a line.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && event.target.matches(".deny textarea")) {
      event.preventDefault();
      event.target.form.requestSubmit(event.target.form.querySelector("button"));
    }
  });
})();
// Live parts: what is open or being typed stays so when its part is replaced.
(() => {
  const key = (element) => element.id || `${element.className}|${element.querySelector("summary")?.textContent}`;
  let open = new Set(), typed = new Map(), focused = "";
  document.addEventListener("htmx:before:swap", () => {
    open = new Set([...document.querySelectorAll(".turn details[open]")].map(key));
    typed = new Map([...document.querySelectorAll(".turn textarea")].map((field) => [field.id, field.value]));
    focused = document.activeElement?.id || "";
  });
  document.addEventListener("htmx:after:swap", () => {
    document.querySelectorAll(".turn details").forEach((element) => { if (open.has(key(element))) element.open = true; });
    document.querySelectorAll(".turn textarea").forEach((field) => { if (typed.get(field.id)) field.value = typed.get(field.id); });
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  });
  // The list of calls follows by itself while nobody works in it.
  document.addEventListener("htmx:sse:after:message", (event) => {
    if (event.target.id === "changes" && !document.activeElement?.closest("[data-call]")) location.reload();
  });
})();
// A choice in a table is saved at once. Its button is for pages without scripts.
document.addEventListener("change", async (event) => {
  const form = event.target.closest("form.settings");
  if (!form) return;
  const at = [...document.querySelectorAll("form.settings")].indexOf(form), label = event.target.getAttribute("aria-label");
  const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelectorAll("form.settings")[at];
  if (!response.ok || !fresh) return form.requestSubmit();
  form.replaceWith(fresh);
  [...fresh.querySelectorAll("select")].find((choice) => choice.getAttribute("aria-label") === label)?.focus();
});
