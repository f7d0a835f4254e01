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
