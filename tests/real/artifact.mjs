// artifact.mjs newest FOLDER   lists this workflow run's artifacts, reads the newest, prints its name
// artifact.mjs replace FILE    writes the file as an artifact, and deletes the ones before
import {readFileSync, readdirSync} from 'node:fs'
import {basename, dirname} from 'node:path'
import {DefaultArtifactClient} from '@actions/artifact'

const client = new DefaultArtifactClient()
const [command, path] = process.argv.slice(2)
// The client's own log goes to standard output, and only the name is asked for.
const print = process.stdout.write.bind(process.stdout)
process.stdout.write = process.stderr.write.bind(process.stderr)
const {artifacts} = await client.listArtifacts()
const names = artifacts.map(artifact => artifact.name).sort()
if (command === 'newest') {
  const newest = artifacts.find(artifact => artifact.name === names.at(-1))
  await client.downloadArtifact(newest.id, {path})
  if (!readdirSync(path).includes(newest.name)) throw new Error(`no file ${newest.name}: ${readdirSync(path)}`)
  print(newest.name + '\n')
} else if (command === 'replace') {
  const name = basename(path)
  const {size} = await client.uploadArtifact(name, [path], dirname(path), {skipArchive: true})
  if (size !== readFileSync(path).length) throw new Error(`${size} bytes were written`)
  for (const other of names) await client.deleteArtifact(other)
} else {
  throw new Error(`no such command: ${command}`)
}
