package main

// The tables that the story ends with.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"warmpool.dev/controller/hack/controlplane"
)

// summary is what a person reads in the end.
func (o *outcome) summary() string {
	return strings.Join([]string{
		"The claims",
		claimsTable(o.claims),
		"Measured here: from right before the request that creates the claim until a watch,\nopened before, tells that the claim is Bound.",
		"What the controller wrote to the API server",
		writesTable(o.filling, o.claiming, o.resting),
		fmt.Sprintf("Besides, its lease: %d writes. Counted from the API server's audit log, refused requests\nincluded; user %s.", len(o.lease), controlplane.Controller),
		fmt.Sprintf("What %d claims cost", len(o.claims)),
		costTable(costOf(o.claiming), len(o.claims)),
	}, "\n\n")
}

func claimsTable(claims []*claim) string {
	rows := [][]string{{"CLAIM", "POD", "CREATED TO BOUND"}}
	for _, c := range claims {
		rows = append(rows, []string{c.name, c.pod, milliseconds(c.latency())})
	}
	return table(rows)
}

// writesTable has a line for each verb and resource. What was written at rest is a
// column only if anything was.
func writesTable(filling, claiming, resting []controlplane.Write) string {
	chapters, header := [][]controlplane.Write{filling, claiming}, []string{"VERB", "RESOURCE", "FILLING", "CLAIMS"}
	if len(resting) > 0 {
		chapters, header = append(chapters, resting), append(header, "AT REST")
	}
	rows := [][]string{append(header, "TOTAL", "REFUSED")}
	all := slices.Concat(chapters...)
	for _, kind := range kinds(all) {
		verb, resource, _ := strings.Cut(kind, " ")
		rows = append(rows, line([]string{verb, resource}, chapters, func(w controlplane.Write) bool { return w.Kind() == kind }))
	}
	rows = append(rows, line([]string{"", "all"}, chapters, func(controlplane.Write) bool { return true }))
	return table(rows)
}

// kinds are the kinds of writes, by resource and then verb.
func kinds(writes []controlplane.Write) []string {
	found := map[string]bool{}
	var all []string
	for _, w := range writes {
		if kind := w.Kind(); !found[kind] {
			found[kind] = true
			all = append(all, kind)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		verbA, resourceA, _ := strings.Cut(a, " ")
		verbB, resourceB, _ := strings.Cut(b, " ")
		return strings.Compare(resourceA+" "+verbA, resourceB+" "+verbB)
	})
	return all
}

// line counts the writes that belong to a line: by chapter, in all, refused.
func line(title []string, chapters [][]controlplane.Write, belongs func(controlplane.Write) bool) []string {
	total, bad := 0, 0
	for _, chapter := range chapters {
		mine := slices.DeleteFunc(slices.Clone(chapter), func(w controlplane.Write) bool { return !belongs(w) })
		title = append(title, strconv.Itoa(len(mine)))
		total += len(mine)
		bad += refused(mine)
	}
	return append(title, strconv.Itoa(total), strconv.Itoa(bad))
}

// costTable has a line for what a claim costs and, if there is any, for what it
// shouldn't.
func costTable(c cost, claims int) string {
	rows := [][]string{{"WRITES", "NUMBER", "PER CLAIM"}}
	add := func(what string, n int) {
		rows = append(rows, []string{what, strconv.Itoa(n), fmt.Sprintf("%.1f", float64(n)/float64(claims))})
	}
	add("Pods patched: the hand-outs", c.handOuts)
	add("claim statuses", c.claimStatuses)
	add("Pods created: the refill", c.created)
	if c.deleted > 0 {
		add("Pods deleted: too many were created", c.deleted)
	}
	if c.others > 0 {
		add("others", c.others)
	}
	add("the claims' own, together", c.claims())
	add("pool statuses, shared by all claims", c.poolStatuses)
	add("events", c.events)
	return table(rows)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// table lays rows out in columns, the first row being the titles. A column whose cells
// begin with a digit is set to the right.
func table(rows [][]string) string {
	var out strings.Builder
	for _, row := range rows {
		var cells []string
		for i, cell := range row {
			pad := strings.Repeat(" ", width(rows, i)-utf8.RuneCountInString(cell))
			if isNumber(rows[len(rows)-1][i]) {
				cells = append(cells, pad+cell)
			} else {
				cells = append(cells, cell+pad)
			}
		}
		fmt.Fprintln(&out, "  "+strings.TrimRight(strings.Join(cells, "  "), " "))
	}
	return strings.TrimRight(out.String(), "\n")
}

// width is that of column i.
func width(rows [][]string, i int) int {
	most := 0
	for _, row := range rows {
		most = max(most, utf8.RuneCountInString(row[i]))
	}
	return most
}

func isNumber(cell string) bool { return cell != "" && cell[0] >= '0' && cell[0] <= '9' }
