// What is wrong with PodMonitors, by the Prometheus Operator's own definition of them: LISTS, lists of
// manifests in JSON; prints a list of complaints for each.

import { pathToFileURL } from "node:url";

// The packages stand where tests/run has put them.
const models = `${process.env.KVGAUGE_NODE}/node_modules/@kubernetes-models/prometheus-operator`;
const { PodMonitor } = await import(pathToFileURL(`${models}/monitoring.coreos.com/v1/PodMonitor.js`));

// The definition names the keys that there are and forbids no others: the API server throws them away. Here
// they are those that nobody asks for while the manifest is looked through.
function watched(value, path, asked) {
  if (value === null || typeof value !== "object") return value;
  const node = { path, keys: new Set(), all: Array.isArray(value), has: Object.keys(value) };
  asked.push(node);
  const inner = Object.fromEntries(node.has.map((key) => [key, watched(value[key], `${path}/${key}`, asked)]));
  return new Proxy(Array.isArray(value) ? Object.values(inner) : inner, {
    get(target, key) {
      node.keys.add(key);
      return target[key];
    },
    // Labels: any key is one.
    ownKeys(target) {
      node.all = true;
      return Reflect.ownKeys(target);
    },
  });
}

function complaints(manifest) {
  const asked = [];
  const said = [];
  // What the constructor is given it copies.
  const model = Object.assign(new PodMonitor(), watched(manifest, "", asked));
  // By the copying, so far.
  Object.assign(asked[0], { keys: new Set(["apiVersion", "kind", "metadata", "spec"]), all: false });
  try {
    model.validate();
  } catch (error) {
    said.push(error.message);
  }
  for (const { path, keys, all, has } of asked) {
    for (const key of has) if (!all && !keys.has(key)) said.push(`${path}/${key} is no key that it has`);
  }
  return said;
}

const lists = JSON.parse(process.argv[2]);
console.log(JSON.stringify(lists.map((list) => list.flatMap(complaints))));
