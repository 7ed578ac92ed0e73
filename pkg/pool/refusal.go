package pool

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// moving is what differs between two refusals for one cause: how much of a quota is used
// ("used: pods=10, requests.cpu=1500m"), and the number that a webhook gives a request. A
// digit within a name isn't meant: "quota-1" and "quota-2" are two causes.
var moving = regexp.MustCompile(`(^|[\s=:(\["'])([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9][0-9A-Za-z.]*)`)

// refusalMessage is what the condition ReplicaFailure says of a refusal. It stays as it is
// while the cause is the same, or the status would be written with each try, for ever.
func refusalMessage(told *metav1.Condition, refusal error, podName string) string {
	// The name is another one in every attempt.
	message := strings.ReplaceAll(refusal.Error(), podName, "NAME")
	if told != nil && told.Status == metav1.ConditionTrue && withoutMoving(told.Message) == withoutMoving(message) {
		return told.Message
	}
	return message
}

// withoutMoving is a message without what moves in it.
func withoutMoving(message string) string { return moving.ReplaceAllString(message, "${1}N") }
