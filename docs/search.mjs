// Asks the built site's own search, as a browser does: node search.mjs SITE < queries as JSON > the pages of each, best first.
import {readFileSync, readdirSync} from "node:fs";
import vm from "node:vm";

const site = process.argv[2];
const workers = site + "/assets/javascripts/workers/";
const source = readFileSync(workers + readdirSync(workers).find(name => /^search\..*\.js$/.test(name)), "utf-8");
const waiting = [];
let listener;
const self = {
  addEventListener: (kind, handler) => { listener = handler; },
  postMessage: message => waiting.shift()(message),
  importScripts: () => {},
  location: {href: "file://" + workers},
  console, setTimeout, clearTimeout, TextEncoder, URL,
};
self.self = self;
self.globalThis = self;
vm.runInContext(source, vm.createContext(self));
const ask = message => new Promise(resolve => { waiting.push(resolve); listener({data: message}); });

const index = JSON.parse(readFileSync(site + "/search/search_index.json", "utf-8"));
let r = await ask({type: 0, data: {...index, options: {suggest: false}}});
const found = {};
for (const query of JSON.parse(readFileSync(0, "utf-8"))) {
  const answer = await ask({type: 2, data: query});
  found[query] = answer.data.items.map(pages => pages[0].location);
}
console.log(JSON.stringify(found));
