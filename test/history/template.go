package history

// O24: the hash that a Pod carries tells the template that it was made from.

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// O24 judges the label warmpool.dev/template-hash and status.updateRevision, by which
// other rules tell old Pods from updated ones. What a hash stands for is known from the
// statuses: updateRevision is the hash of the template that the pool had at the
// generation in observedGeneration.
//
//   - The same template always has the same hash, and another template another one, in
//     all pools.
//   - Each Pod that is created for a pool carries a hash, and its labels, annotations and
//     spec are what the template of that hash says. Admission may have added to them.
//     Where no status has ever told of the hash, it is one of the templates that the pool
//     has had until then.
//   - The hash on a Pod never changes.
func O24(h *History, terms Terms) []Violation {
	v := &verdict{rule: "O24"}
	known := hashesOf(h, v)
	had := map[types.UID][]map[string]any{} // the templates of each pool
	h.replay(func(s step) {
		switch {
		case s.pool != nil:
			had[s.pool.UID] = append(had[s.pool.UID], s.pool.Spec.Template)
		case s.pod != nil && s.old == nil && !s.Deleted && !s.Initial && OwnerOf(s.pod).Kind == kindPool:
			known.judgeCreation(v, s, had[OwnerOf(s.pod).UID])
		case s.pod != nil && s.old != nil && ours(s.old.pod) && !s.Deleted && !terms.others(s.Version):
			if was, is := s.old.pod.Labels[labelHash], s.pod.Labels[labelHash]; was != is {
				v.at(s.Version, "had the label %s=%s and has %q", labelHash, was, is)
			}
		}
	})
	return v.found
}

// hashes are the templates' hashes, as all statuses together tell them.
type hashes struct {
	hash     map[string]string         // by template, as JSON
	template map[string]map[string]any // by hash
}

// hashOf returns the hash of a pool's template; empty: it was never told.
func (k *hashes) hashOf(pool *Pool) string { return k.hash[asJSON(pool.Spec.Template)] }

// hashesOf reads the statuses, and notes what doesn't fit together.
func hashesOf(h *History, v *verdict) *hashes {
	k := &hashes{hash: map[string]string{}, template: map[string]map[string]any{}}
	type generation struct {
		pool   types.UID
		number int64
	}
	templates := map[generation]map[string]any{}
	h.replay(func(s step) {
		if s.pool == nil || s.Deleted {
			return
		}
		templates[generation{s.pool.UID, s.pool.Generation}] = s.pool.Spec.Template
		hash := s.pool.Status.UpdateRevision
		template, ok := templates[generation{s.pool.UID, s.pool.Status.ObservedGeneration}]
		if hash == "" || !ok {
			return
		}
		if other, ok := k.hash[asJSON(template)]; ok && other != hash {
			v.at(s.Version, "the template of generation %d has the hash %s, and had %s", s.pool.Status.ObservedGeneration, hash, other)
		}
		if other, ok := k.template[hash]; ok && !reflect.DeepEqual(withoutEmpty(other), withoutEmpty(template)) {
			v.at(s.Version, "the template of generation %d has the hash %s of another template", s.pool.Status.ObservedGeneration, hash)
		}
		k.hash[asJSON(template)], k.template[hash] = hash, template
	})
	return k
}

// judgeCreation judges a new Pod by its hash, or else by the templates of its pool.
func (k *hashes) judgeCreation(v *verdict, s step, had []map[string]any) {
	hash := s.pod.Labels[labelHash]
	if hash == "" {
		v.at(s.Version, "created without the label %s", labelHash)
		return
	}
	if template, ok := k.template[hash]; ok {
		if missing := missingIn(s.Object.Object, template); missing != "" {
			v.at(s.Version, "its hash is %s, and it wasn't made from that template: %s", hash, missing)
		}
		return
	}
	missing := "the pool has none"
	for _, template := range had {
		if missing = missingIn(s.Object.Object, template); missing == "" {
			return
		}
	}
	v.at(s.Version, "it wasn't made from any template of its pool: %s", missing)
}

// missingIn tells what a template says and a Pod doesn't; empty: nothing.
func missingIn(pod, template map[string]any) string {
	metadata, _ := template["metadata"].(map[string]any)
	have, _ := pod["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		if missing := lacks(have[key], metadata[key], "metadata."+key); missing != "" {
			return missing
		}
	}
	return lacks(pod["spec"], template["spec"], "spec")
}

// lacks tells the first place in which something isn't as is wanted; empty: there is none.
// There may be more than is wanted: other keys, and items behind those of a list.
func lacks(have, want any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		have, _ := have.(map[string]any)
		for key, value := range want {
			if missing := lacks(have[key], value, path+"."+key); missing != "" {
				return missing
			}
		}
		return ""
	case []any:
		have, _ := have.([]any)
		for i, value := range want {
			if i >= len(have) {
				return fmt.Sprintf("%s has %d items", path, len(have))
			}
			if missing := lacks(have[i], value, fmt.Sprintf("%s[%d]", path, i)); missing != "" {
				return missing
			}
		}
		return ""
	}
	if want == nil || want == "" || isEmpty(want) && have == nil || sameValue(have, want) {
		return "" // what isn't said may be anything: there are defaults
	}
	return fmt.Sprintf("%s is %v, not %v", path, have, want)
}

// sameValue compares what has no parts. A quantity may be written in several ways.
func sameValue(a, b any) bool {
	if fmt.Sprint(a) == fmt.Sprint(b) {
		return true
	}
	x, errX := resource.ParseQuantity(fmt.Sprint(a))
	y, errY := resource.ParseQuantity(fmt.Sprint(b))
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

// withoutEmpty returns a copy without what may as well be left out.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, item := range value {
			if item = withoutEmpty(item); !isEmpty(item) {
				kept[key] = item
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(value))
		for _, item := range value {
			kept = append(kept, withoutEmpty(item))
		}
		return kept
	}
	return value
}

// isEmpty tells whether a value says nothing: a zero, or something without parts.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return reflect.ValueOf(value).IsZero()
}

// asJSON writes a template down, keys in order.
func asJSON(template map[string]any) string {
	text, err := json.Marshal(template)
	if err != nil {
		panic(fmt.Sprintf("what came as JSON can't be written as JSON: %v", err))
	}
	return string(text)
}
