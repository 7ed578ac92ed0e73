// Package lab takes the controller's guards out, one at a time, and shows what goes wrong.
//
// Each row of the lab is a guard, a fault and a short story. The story is told under the
// fault to two controllers: to the product as it is, and to one that is built from the same
// sources but for a line or a few. Which lines those are stands in the row and in the table
// that comes of it; the product has no flag for it. Both are judged on what etcd recorded and on
// what a fault proxy saw, and set side by side in docs/lab.md:
//
//	make lab
//
//	edit.go          the lines that are taken out, and what go build is told of them
//	rows.go          the rows of the guards in pkg/freshness
//	secondline.go    the rows of what the API server itself refuses
//	telling.go       one telling: a namespace, a recorder, controllers behind proxies
//	stories.go, overlap.go, outage.go
//	                 the stories
//	measure.go       what a telling has shown, in numbers
//	table.go         docs/lab.md
//	picture.go       docs/lab.svg
//	lab_test.go      the lab, and what keeps it from rotting
package lab
