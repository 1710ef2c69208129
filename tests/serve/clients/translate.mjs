// Two clients from npm, each asked for one translation. The server's address is the argument.
import libretranslate from "libretranslate";
import translate from "translate";

const server = process.argv[2];
const first = await libretranslate.translate({ query: "one two", source: "en", target: "ko", apiurl: server });
translate.engine = "libre";
translate.url = `${server}/translate`;
const second = await translate("one two", { from: "en", to: "ko" });
console.log(JSON.stringify({ libretranslate: first, translate: second }));
