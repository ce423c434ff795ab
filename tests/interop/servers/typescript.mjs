// A server of the TypeScript SDK's second line: on stdio, or over HTTP on the port that is its argument.
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

function make() {
  const server = new McpServer({ name: "typescript", version: "1" });
  const shape = { description: "Add two numbers.", inputSchema: z.object({ a: z.number(), b: z.number() }) };
  server.registerTool("add", shape, async ({ a, b }) => ({ content: [{ type: "text", text: String(a + b) }] }));
  return server;
}

const port = process.argv[2];
if (port === undefined) {
  serveStdio(make);
} else {
  createServer(toNodeHandler(createMcpHandler(make))).listen(Number(port), "127.0.0.1");
}
