// A server of the TypeScript framework fastmcp: on stdio, or over HTTP on the port that is its argument.
import { FastMCP } from "fastmcp";
import { z } from "zod";

const server = new FastMCP({ name: "fastmcp", version: "1.0.0" });
server.addTool({
  name: "add",
  description: "Add two numbers.",
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => String(a + b),
});

const port = process.argv[2];
await server.start(
  port === undefined
    ? { transportType: "stdio" }
    : { transportType: "httpStream", httpStream: { port: Number(port), host: "127.0.0.1" } },
);
