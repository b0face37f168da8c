// A menu of the versions that are published next to this one. versions.json is in the folder above; without it there is no menu.
addEventListener("DOMContentLoaded", async () => {
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location);
  let names;
  try { names = await (await fetch(new URL("../versions.json", root))).json(); } catch { return; }
  const menu = document.createElement("select");
  menu.ariaLabel = "Version";
  menu.className = "versions";
  const here = root.pathname.split("/").at(-2);
  for (const name of names) menu.add(new Option(name, name, false, name === here));
  menu.addEventListener("change", () => { location = new URL(`../${menu.value}/`, root); });
  document.querySelector(".sidebar-brand")?.after(menu);
});
